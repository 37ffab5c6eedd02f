#!/usr/bin/env python3
"""The character GPT of samples/chargpt in PyTorch: batch 12 of 64 characters. One JSON object as the last line."""

import argparse

import peer


def run_one(options):
    import numpy
    import torch

    torch.set_num_threads(options.threads)
    model = peer.gpt2(vocab=65, context=64, width=128, layers=4, heads=4)
    text = torch.from_numpy(numpy.fromfile(options.data, dtype="<u2").astype("int64"))

    def next_batch():
        starts = torch.randint(0, len(text) - 64, (12,)).tolist()
        windows = torch.stack([text[s : s + 65] for s in starts])
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    adamw = {"lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    return peer.measure(model, next_batch, adamw, 1.0, options.mode, options.steps or 200, warm_up=20)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="train.bin, as samples/chargpt/tokenize writes it")
    peer.main(__file__, parser, run_one)
