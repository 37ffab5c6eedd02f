#!/usr/bin/env python3
"""Fits the curves of the cost model (curves.def) to published measurements.

    passes/cost/fit.py BUILD/tests/bench/published DIR [--trials N] [--only CURVE] > curves.def

DIR has the CSV files that tests/bench/published reads. The bench predicts every row with the constants given by --set,
so no formula is repeated here. Each step is on what it is about: matrix products and attention on micro_gemm.csv, the
communication library on micro_collectives.csv, then what a kernel and the host cost on training steps. A constant
belongs to an architecture, never to a row or to a source. The loss is the mean over sources of the mean absolute error,
so no large table drowns a small one; the search is deterministic and starts from the constants that the bench was built
with.
"""
import argparse
import csv
import math
import os
import random
import re
import subprocess
import sys

FIELDS = ["tile_efficiency", "eight_bit", "tile_ramp", "small_tile", "misaligned", "attention_forward",
          "attention_backward", "attention_early", "attention_ramp", "stream", "ramp_bytes", "start", "host_issue",
          "host_jitter", "library_issue", "library_ramp", "workspace"]
BOUNDS = {"tile_efficiency": (0.3, 1), "eight_bit": (0.3, 2), "tile_ramp": (1, 600), "small_tile": (0.01, 1),
          "misaligned": (0.2, 1), "attention_forward": (0.1, 1), "attention_backward": (0.1, 1),
          "attention_early": (0.2, 1), "attention_ramp": (1, 4096), "stream": (0.65, 0.95), "start": (1e-6, 1e-5),
          "host_issue": (5e-6, 8e-5), "host_jitter": (0.02, 0.5), "library_issue": (2e-6, 6e-5),
          "library_ramp": (1e6, 1e8)}
CURVES = {"volta": ["V100"], "ampere": ["A100-SXM", "A100 SXM", "A100-40"], "ampere_pcie": ["A100-PCIe"],
          "hopper": ["H100-SXM", "H200", "GH200"], "hopper_500w": ["H100-HBM2e"],
          "blackwell": ["B200", "GB200"]}
PRODUCTS = ["tile_efficiency", "tile_ramp", "small_tile", "misaligned", "attention_forward", "attention_backward",
            "attention_ramp"]
KERNELS = ["stream", "start", "host_issue", "host_jitter", "attention_early"]
LIBRARY = ["library_issue", "library_ramp"]
# Sources whose rows are whole steps with a plan that is stated (completeness A), per curve.
STEPS = {"volta": ["steps_bert_dp.csv"],
         "ampere": ["steps_vtrain_single.csv", "steps_vtrain_multi.csv", "steps_llm_foundry_fsdp.csv",
                    "steps_megatron_papers.csv"],
         "hopper": ["steps_llm_foundry_fsdp.csv", "steps_mlperf.csv"],
         "hopper_500w": ["steps_torchtitan.csv"],
         "blackwell": ["steps_mlperf.csv", "steps_simumax.csv"]}
# Nothing measures products of these alone: their efficiency is fitted to the steps.
FROM_STEPS = {"ampere": ["attention_ramp"], "hopper": ["tile_efficiency", "eight_bit", "attention_ramp"], "hopper_500w": ["tile_efficiency", "eight_bit"],
              "blackwell": ["eight_bit"]}


def read_curves(path):
    curves = {}
    for line in open(path):
        match = re.match(r"SN_CURVE\((\w+), (.*)\)", line)
        if match:
            numbers = re.findall(r"[-+0-9.e]+", match[2])
            curves[match[1]] = dict(zip(FIELDS, map(float, numbers)))
    return curves


class Bench:
    def __init__(self, program, folder):
        self.program, self.folder, self.device = program, folder, {}

    def devices(self, name):
        if name not in self.device:
            with open(os.path.join(self.folder, name)) as file:
                self.device[name] = {r["row_id"]: r.get("gpu") or r.get("device") for r in csv.DictReader(file)}
        return self.device[name]

    def errors(self, name, curve, settings):
        """(source, error) of each row of a file whose device has the curve."""
        command = [self.program, self.folder, "--rows", "--file", name]
        for field, value in settings.items():
            command += ["--set", f"{curve}.{field}={value:.6g}"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        devices, found = self.devices(name), []
        for line in output.splitlines():
            cells = line.split(",")
            if cells[0] == name and len(cells) > 5 and devices[cells[1]].startswith(tuple(CURVES[curve])):
                found.append((cells[2], float(cells[5])))
        return found

    def loss(self, names, curve, settings):
        by_source = {}
        for name in names:
            for source, error in self.errors(name, curve, settings):
                if source != "mamf":  # the best shape of each device only
                    by_source.setdefault(source, []).append(min(abs(error), 1))
        if not by_source:
            return 0
        return sum(sum(e) / len(e) for e in by_source.values()) / len(by_source)


def climb(bench, names, curve, settings, fields, trials):
    """Moves one to three constants at a time, by less and less; keeps what is better. Deterministic."""
    dice, step, best = random.Random(1), 0.25, bench.loss(names, curve, settings)
    for trial in range(trials):
        moved = dict(settings)
        for field in dice.sample(fields, dice.randint(1, min(3, len(fields)))):
            low, high = BOUNDS[field]
            moved[field] = min(max(settings[field] * math.exp(dice.gauss(0, step)), low), high)
        loss = bench.loss(names, curve, moved)
        if loss < best - 1e-6:
            best, settings = loss, moved
        if trial % 60 == 59:
            step *= 0.8
    return best, settings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("folder")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--only")
    options = parser.parse_args()
    curves = read_curves(os.path.join(os.path.dirname(os.path.abspath(__file__)), "curves.def"))
    bench = Bench(options.bench, options.folder)
    for name in CURVES:
        if options.only and name not in options.only.split(","):
            continue
        settings = curves[name]
        if len(bench.errors("micro_gemm.csv", name, settings)) >= 20:
            loss, settings = climb(bench, ["micro_gemm.csv"], name, settings, PRODUCTS, options.trials)
            print(f"{name}: products {100 * loss:.2f} %", file=sys.stderr)
        if len(bench.errors("micro_collectives.csv", name, settings)) >= 20:
            loss, settings = climb(bench, ["micro_collectives.csv"], name, settings, LIBRARY, options.trials)
            print(f"{name}: collectives {100 * loss:.2f} %", file=sys.stderr)
        if name in STEPS:
            fields = KERNELS + FROM_STEPS.get(name, [])
            loss, settings = climb(bench, STEPS[name], name, settings, fields, options.trials)
            print(f"{name}: steps {100 * loss:.2f} %", file=sys.stderr)
        curves[name] = settings
    print("// Curves of the architectures (sn_curve, in its order), by passes/cost/fit.py from published measurements.")
    for name, curve in curves.items():
        numbers = [f"{curve[field]:.4g}" for field in FIELDS]
        numbers[5:7] = ["{%s, %s}" % tuple(numbers[5:7])]
        print(f"SN_CURVE({name}, {', '.join(numbers)})")


if __name__ == "__main__":
    main()
