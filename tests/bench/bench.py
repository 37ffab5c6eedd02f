"""What the benchmarks of this folder share. Standard library alone: only the PyTorch side needs scripts/python-env.sh."""

import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse_arguments(description, **defaults):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python", help="a Python with PyTorch")
    parser.add_argument("--work", type=pathlib.Path, help="folder for models and runs (default: BUILD/bench)")
    if "steps" in defaults:
        parser.add_argument("--threads", type=int, default=2)
        parser.add_argument("--rounds", type=int, default=3, help="how often the two sides alternate")
        parser.add_argument("--steps", type=int, default=defaults["steps"], help="steps measured in a round")
        parser.add_argument("--no-peer", action="store_true", help="measure sennit alone")
    options = parser.parse_args()
    options.work = options.work or options.build / "bench"
    options.work.mkdir(parents=True, exist_ok=True)
    options.sennit = options.build / "tools/sennit"
    if not options.sennit.exists():
        sys.exit(f"bench: {options.sennit} is missing; build first: cmake -G Ninja -B build && ninja -C build")
    return options


def note(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def need_python(options):
    if not options.python.exists():
        subprocess.run([ROOT / "scripts/python-env.sh"], check=True, stdout=sys.stderr)


def gpt2_model(options):
    """GPT-2 124M as an ONNX file of 500 MB; made once."""
    path = options.work / "gpt2.onnx"
    if not path.exists():
        need_python(options)
        note(f"exporting {path}")
        partial = path.with_suffix(".partial.onnx")
        exporter = ROOT / "samples/exporters/gpt2.py"
        subprocess.run([options.python, exporter, partial], check=True, stdout=sys.stderr)
        partial.rename(path)
    return path


def random_tokens(path, count, vocabulary):
    generator = random.Random(1)
    path.write_bytes(struct.pack(f"<{count}H", *(generator.randrange(vocabulary) for _ in range(count))))


def run(command, **keywords):
    """Runs a command; returns (seconds, peak MiB of its largest process, standard output). Stops the benchmark on failure."""
    command = [str(word) for word in command]
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **keywords)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)  # ru_maxrss: the largest of the child and the descendants it waited for
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench: exit status {child.returncode}: {' '.join(command)}\n{output}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024, output


def sennit_steps(options, arguments, warm_up):
    """Trains by `sennit train` on one rank; returns (step times in ms after warm_up steps, peak MiB, losses)."""
    log = options.work / "run.jsonl"
    log.unlink(missing_ok=True)
    command = [options.sennit, "train", *arguments, "--ranks", 1, "--threads", options.threads]
    command += ["--steps", warm_up + options.steps, "--log", log]
    _, peak, _ = run(command, cwd=options.work)
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    steps = [step for step in steps if "step_ms" in step]
    return [step["step_ms"] for step in steps[warm_up:]], peak, [step["loss"] for step in steps]


def peer(options, script, arguments, environment=None):
    command = [options.python, ROOT / "tests/bench" / script, "--threads", options.threads, *arguments]
    command += ["--steps", options.steps]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), **(environment or {})}
    _, _, output = run(command, env=environment)
    return json.loads(output.splitlines()[-1])


def quartiles(times):
    low, _, high = statistics.quantiles(times, n=4)
    return [round(low, 3), round(high, 3)]


def compare(options, *, arguments, warm_up, peer_script, peer_arguments, gflop):
    """Alternates rounds of sennit and of PyTorch's best setting; prints the comparison as the last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    machine = json.loads(run([options.build / "tests/bench/peak"], env=environment)[2])
    search = None
    if not options.no_peer:
        need_python(options)
        search = peer(options, peer_script, peer_arguments)
        note(f"PyTorch is fastest with {search['best']['mode']}, allocator {search['best']['allocator']}")

    ours, theirs, peaks = [], [], []
    for _ in range(options.rounds):
        times, peak, losses = sennit_steps(options, arguments, warm_up)
        note(f"sennit: median {statistics.median(times):.1f} ms, peak {peak:.0f} MiB, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        ours += times
        peaks.append(peak)
        if search:
            import peer as settings

            best = search["best"]
            result = peer(options, peer_script, [*peer_arguments, "--mode", best["mode"]], settings.ALLOCATORS[best["allocator"]])
            note(f"PyTorch: median {result['median_ms']} ms")
            theirs += result["times_ms"]

    median = statistics.median(ours)
    bound = gflop / machine["fma_gflops"] * 1e3  # what the products alone take at the processor's own limit
    result = {
        "sennit_ms": round(median, 3),
        "sennit_quartiles_ms": quartiles(ours),
        "sennit_peak_mib": round(max(peaks), 1),
        "share_of_peak": round(gflop / (median * 1e-3) / machine["gflops"], 3),
        "gflop": gflop,
        "bound_ms": round(bound, 3),
        "machine": machine,
        "threads": options.threads,
    }
    if search:
        least = search["least_memory"]
        result |= {
            "time_ratio": round(median / statistics.median(theirs), 3),
            "bound_ratio": round(bound / statistics.median(theirs), 3),  # no step can have a smaller time_ratio
            "memory_ratio": round(max(peaks) / least["peak_mib"], 3),
            "peer_ms": round(statistics.median(theirs), 3),
            "peer_quartiles_ms": quartiles(theirs),
            "peer_mode": search["best"]["mode"],
            "peer_allocator": search["best"]["allocator"],
            "peer_least_mib": least["peak_mib"],
            "peer_runs": [{k: r[k] for k in ("mode", "allocator", "median_ms", "peak_mib")} for r in search["runs"]],
            "torch": search["best"]["torch"],
        }
    print(json.dumps(result))


def transformer_gflop(batch, tokens, width, layers, vocabulary):
    """Products of one training step, in 1e9 operations: 2 per weight and token forward, twice that backward, and attention."""
    weights = layers * 12 * width * width + vocabulary * width
    attention = layers * 4 * tokens * tokens * width
    return round(3 * batch * (2 * weights * tokens + attention) * 1e-9, 2)
