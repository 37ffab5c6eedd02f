#!/usr/bin/env python3
"""Writes GPT-2 124M with random weights: the model of tests/bench/gpt2 and tests/bench/compile.

    .venv/bin/python samples/exporters/gpt2.py OUTPUT.onnx [--dynamic]

Batch 1 of 256 tokens unless --dynamic, which leaves the dimensions `batch` and `seq` symbolic. About 500 MB in one file.
"""

import argparse
import pathlib

import torch
from gpt2_module import CausalLM, gpt2_config, read_back, save

SEED = 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--dynamic", action="store_true", help="symbolic batch and sequence length")
    arguments = parser.parse_args()

    torch.manual_seed(SEED)
    model = CausalLM(gpt2_config(vocab=50257, context=1024, width=768, layers=12, heads=12)).eval()
    input_ids = torch.randint(0, 50257, (1, 256))
    dynamic_shapes = None
    example = input_ids
    if arguments.dynamic:
        example = input_ids.repeat(2, 1)  # an extent of 1 would be specialised
        dynamic_shapes = {"input_ids": {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("seq", min=2, max=1024)}}
    program = torch.onnx.export(
        model,
        (example,),
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes=dynamic_shapes,
        opset_version=20,
        dynamo=True,
        optimize=False,
    )
    save(program, arguments.output)
    read_back(arguments.output, model, input_ids)


if __name__ == "__main__":
    main()
