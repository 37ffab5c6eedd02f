#!/usr/bin/env python3
"""Writes sequence_first.onnx, a perceptron that works on [sequence, batch] though its input and output are
[batch, sequence]: what is gathered over ranks is then cut along another dim than its first. Needs numpy and onnx."""

import pathlib

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

SEQUENCE, INPUT, HIDDEN, CLASSES = 7, 6, 5, 4

random = np.random.default_rng(0)
shapes = {"w1": (INPUT, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES)}
tensors = {name: (0.5 * random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
tensors["flat"] = np.array([-1, INPUT])
tensors["rows"] = np.array([SEQUENCE, -1, HIDDEN])

nodes = [
    helper.make_node("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
    helper.make_node("Reshape", ["xt", "flat"], ["xf"]),
    helper.make_node("MatMul", ["xf", "w1"], ["a"]),
    helper.make_node("Add", ["a", "b1"], ["b"]),
    helper.make_node("Tanh", ["b"], ["t"]),
    helper.make_node("Reshape", ["t", "rows"], ["tr"]),
    helper.make_node("MatMul", ["tr", "w2"], ["o"]),
    helper.make_node("Transpose", ["o"], ["logits"], perm=[1, 0, 2]),
]
graph = helper.make_graph(
    nodes,
    "sequence_first",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", SEQUENCE, INPUT])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", SEQUENCE, CLASSES])],
    [numpy_helper.from_array(array, name) for name, array in tensors.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
checker.check_model(model)
save(model, pathlib.Path(__file__).with_suffix(".onnx"))
