"""Measures one training configuration in PyTorch, for the comparisons in this folder.

The step is what sennit compiles: forward, mean cross-entropy, backward, clipping where the recipe has it, AdamW. PyTorch gets
its best settings: SDPA attention, the fused optimizer, gradients set to None, and an allocator that keeps its memory (this
matters: where the first touch of a page is slow, returning blocks to the system triples the step).
"""

import json
import os
import statistics
import subprocess
import sys
import time

# What glibc may be told before a process starts. `keep`: never give memory back, no mmap for large blocks; `huge`: and ask
# for huge pages. The best of them counts.
ALLOCATORS = {
    "default": {},
    "keep": {
        "MALLOC_MMAP_THRESHOLD_": "4294967296",
        "MALLOC_TRIM_THRESHOLD_": "17179869184",
        "MALLOC_TOP_PAD_": "268435456",
    },
    "keep+huge": {
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296"
        ":glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456",
    },
}


def peak_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def gpt2(vocab, context, width, layers, heads):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=vocab, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=None, eos_token_id=None,
        attn_implementation="sdpa",
    )  # fmt: skip
    return GPT2LMHeadModel(config).train()


def measure(model, next_batch, adamw, clip, mode, steps, warm_up):
    """Runs warm_up + steps training steps on batches (input_ids, labels); returns what was measured as a dict."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **adamw)
    vocab = model.config.vocab_size

    def loss_of(input_ids, labels):
        logits = model(input_ids=input_ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, vocab), labels.view(-1))

    if mode == "compile":
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*next_batch())
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(warm_up)]
    peak_warm_up = peak_kib()
    forget_peak()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(step())
        times.append(1e3 * (time.perf_counter() - start))
    quarter = statistics.quantiles(times, n=4)
    return {
        "mode": mode,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "steps": steps,
        "median_ms": round(statistics.median(times), 3),
        "min_ms": round(min(times), 3),
        "quartiles_ms": [round(quarter[0], 3), round(quarter[2], 3)],
        "peak_mib": round(peak_kib() / 1024, 1),
        "peak_mib_warm_up": round(peak_warm_up / 1024, 1),
        "times_ms": [round(t, 3) for t in times],
        "loss_first": losses[0],
        "loss_last": losses[-1],
    }


def best_of(script, arguments, modes, allocators, threads):
    """Runs `script` once per mode and allocator setting, each in a process of its own; returns all, the fastest first."""
    runs = []
    for mode in modes:
        for allocator in allocators:
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
            environment.update(ALLOCATORS[allocator])
            command = [sys.executable, script, *arguments, "--mode", mode]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                print(f"peer: {mode} with {allocator} failed", file=sys.stderr)
                continue
            runs.append({**json.loads(done.stdout.splitlines()[-1]), "allocator": allocator})
            shown = {key: value for key, value in runs[-1].items() if key != "times_ms"}
            print(json.dumps(shown), file=sys.stderr, flush=True)
    return sorted(runs, key=lambda run: run["median_ms"])


def main(script, parser, run_one):
    """The command line that the peers share: one --mode here, or the best of all."""
    parser.add_argument("--mode", choices=["eager", "compile", "best"], default="best")
    parser.add_argument("--steps", type=int, required=False)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--allocators", nargs="*", default=list(ALLOCATORS), choices=list(ALLOCATORS))
    options = parser.parse_args()
    if options.mode != "best":
        print(json.dumps(run_one(options)))
        return
    runs = best_of(script, sys.argv[1:], ["eager", "compile"], options.allocators, options.threads)
    if not runs:
        sys.exit("peer: no setting of PyTorch ran")
    least = min(runs, key=lambda run: run["peak_mib"])
    print(json.dumps({"best": runs[0], "least_memory": least, "runs": runs}))
