#!/usr/bin/env python3
"""GPT-2 124M in PyTorch: batch 1 of 256 tokens, float32, forward + backward + AdamW. One JSON object as the last line."""

import argparse

import peer


def run_one(options):
    import torch

    torch.set_num_threads(options.threads)
    model = peer.gpt2(vocab=50257, context=1024, width=768, layers=12, heads=12)
    tokens = torch.randint(0, 50257, (1, 257))
    adamw = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    batch = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return peer.measure(model, lambda: batch, adamw, None, options.mode, options.steps or 10, warm_up=3)


if __name__ == "__main__":
    peer.main(__file__, argparse.ArgumentParser(description=__doc__), run_one)
