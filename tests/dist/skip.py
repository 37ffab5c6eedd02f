#!/usr/bin/env python3
"""Writes skip.onnx, a perceptron whose second product is added to its fourth: cut into four stages on two ranks, a
value and then its gradient, of one size, go from one chunk of a rank to the other. Needs numpy and onnx."""

import pathlib

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

LAYERS, WIDTH = 4, 6

random = np.random.default_rng(0)
tensors = {f"w{i}": (0.5 * random.standard_normal((WIDTH, WIDTH))).astype(np.float32) for i in range(LAYERS)}

nodes = []
for i in range(LAYERS):
    nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"a{i}"], name=f"product{i}"))
    if i == 3:
        nodes.append(helper.make_node("Add", ["a3", "a1"], ["s3"], name="skip"))
    last = "logits" if i == LAYERS - 1 else f"h{i + 1}"
    nodes.append(helper.make_node("Tanh", ["s3" if i == 3 else f"a{i}"], [last], name=f"tanh{i}"))
graph = helper.make_graph(
    nodes,
    "skip",
    [helper.make_tensor_value_info("h0", TensorProto.FLOAT, ["batch", WIDTH])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", WIDTH])],
    [numpy_helper.from_array(array, name) for name, array in tensors.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
checker.check_model(model)
save(model, pathlib.Path(__file__).with_suffix(".onnx"))
