#!/usr/bin/env python3
"""Writes samples/chargpt/model.onnx: a character-level GPT-2 of 809,856 parameters, ready for training.

    .venv/bin/python samples/exporters/chargpt.py [OUTPUT.onnx]         (scripts/python-env.sh makes .venv)

4 layers, 128 wide, 4 heads, context 64, 65 characters, tied output layer, no dropout; GPT-2's initial values. The export is
optimize=False: the optimizer of the exporter merges equal parameters and folds tables that training has to change.
"""

import argparse
import pathlib

import torch
from gpt2_module import CausalLM, gpt2_config, read_back, save

SEED = 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parents[1] / "chargpt" / "model.onnx"
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=default)
    output = parser.parse_args().output

    torch.manual_seed(SEED)
    model = CausalLM(gpt2_config(vocab=65, context=64, width=128, layers=4, heads=4)).eval()
    assert sum(p.numel() for p in model.parameters()) == 809_856

    batch, seq = torch.export.Dim("batch", min=1), torch.export.Dim("seq", min=2, max=64)
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 64, dtype=torch.int64),),
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes={"input_ids": {0: batch, 1: seq}},
        opset_version=20,
        dynamo=True,
        optimize=False,
    )
    save(program, output)
    read_back(output, model, torch.randint(0, 65, (3, 17)))


if __name__ == "__main__":
    main()
