"""GPT-2 as Hugging Face writes it, reduced to `input_ids -> logits`, and what its exporters share."""

import numpy as np
import onnx
import onnxruntime
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def gpt2_config(vocab, context, width, layers, heads):
    """A configuration without dropout; eager attention exports as plain MatMul and Softmax."""
    return GPT2Config(
        vocab_size=vocab,
        n_positions=context,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )


class CausalLM(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.lm = GPT2LMHeadModel(config)  # N(0, 0.02); residual projections scaled by 1/sqrt(2 layers); head tied

    def forward(self, input_ids):
        return self.lm(input_ids=input_ids, use_cache=False).logits


def save(program, path):
    """Writes an exported program without the stack traces of its nodes, which carry paths of this machine."""
    model = program.model_proto
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if not entry.key.endswith("stack_trace")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def read_back(path, model, input_ids):
    """Runs the written file in ONNX Runtime and fails if it disagrees with PyTorch."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (got,) = session.run(["logits"], {"input_ids": input_ids.numpy()})
    with torch.no_grad():
        want = model(input_ids).numpy()
    worst = np.abs(got - want).max()
    assert worst < 1e-4, f"{path}: logits differ from PyTorch's by {worst}"
    print(f"{path}: {path.stat().st_size:,} bytes, logits within {worst:.1e} of PyTorch's")
