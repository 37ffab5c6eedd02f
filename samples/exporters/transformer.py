#!/usr/bin/env python3
"""Writes a large decoder-only transformer as an ONNX graph without weights, for `sennit plan`.

    .venv/bin/python samples/exporters/transformer.py gpt3-175b OUTPUT.onnx [--layers N …]

The initializers name external data that is not written: planning needs shapes alone, and training such a file is an
error that says so (--weights writes some, for small variants). The batch stays symbolic (`batch`); the labels are an
input and the loss is the output. Needs the package `onnx`, nothing else.
"""

import argparse
import dataclasses

import numpy
import onnx
from onnx import TensorProto, helper


@dataclasses.dataclass
class Config:
    family: str  # gpt: LayerNorm, learned positions, GELU; llama: RMSNorm, rotary positions, SwiGLU, grouped queries
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    experts: int = 0  # of the MLP of each block; 0: it is one
    top: int = 2  # experts that a token is sent to
    group: int = 512  # tokens that share the places of an expert: masks are as large as tokens times places
    capacity: float = 1.25  # those places over the tokens that it gets on average; what finds none is passed by


def gpt(layers, hidden, heads, vocab=51200, seq=2048):
    return Config("gpt", layers, hidden, heads, heads, 4 * hidden, vocab, seq)


# GPT-3 175B: Brown et al. 2020, table 2.1; 1T and the smaller ones: Narayanan et al. 2021, table 1; Llama 3: Grattafiori
# et al. 2024, table 3; Mixtral: Jiang et al. 2024, table 1.
CONFIGS = {
    "gpt-1.7b": gpt(24, 2304, 24),
    "gpt-7.5b": gpt(36, 4096, 32),
    "gpt-18.4b": gpt(40, 6144, 48),
    "gpt-39.1b": gpt(48, 8192, 64),
    "gpt-76.1b": gpt(60, 10240, 80),
    "gpt-145.6b": gpt(80, 12288, 96),
    "gpt3-175b": gpt(96, 12288, 96),
    "gpt-310.1b": gpt(96, 16384, 128),
    "gpt-529.6b": gpt(105, 20480, 128),
    "gpt-1t": gpt(128, 25600, 160),
    "llama3-8b": Config("llama", 32, 4096, 32, 8, 14336, 128256, 8192),
    "llama3-70b": Config("llama", 80, 8192, 64, 8, 28672, 128256, 8192),
    "mixtral-8x7b": Config("llama", 32, 4096, 32, 8, 14336, 32000, 4096, experts=8),
    "llama3-405b": Config("llama", 126, 16384, 128, 8, 53248, 128256, 8192),
}
DTYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


class Graph:
    """Nodes and initializers in the order in which they are made."""

    def __init__(self, dtype, data):
        self.dtype, self.data = dtype, data
        self.nodes, self.weights, self.offset = [], [], 0

    def weight(self, name, *shape):
        tensor = TensorProto(name=name, data_type=self.dtype, dims=shape, data_location=TensorProto.EXTERNAL)
        size = 4 if self.dtype == TensorProto.FLOAT else 2
        for extent in shape:
            size *= extent
        for key, value in (("location", self.data), ("offset", self.offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        self.offset += size
        self.weights.append(tensor)
        return name

    def constant(self, name, values):
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def node(self, kind, name, inputs, outputs=None, **attributes):
        outputs = outputs or [name + "_out"]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def linear(self, path, x, rows, columns, bias):
        y = self.node("MatMul", f"/{path}/MatMul".replace(".", "/"), [x, self.weight(f"{path}.weight", rows, columns)])
        if not bias:
            return y
        return self.node("Add", f"/{path}/Add".replace(".", "/"), [y, self.weight(f"{path}.bias", columns)])


def normalise(g, c, path, x):
    name = "/" + path.replace(".", "/")
    scale = g.weight(f"{path}.weight", c.hidden)
    if c.family == "llama":
        return g.node("RMSNormalization", name, [x, scale], axis=-1, epsilon=1e-5)
    return g.node("LayerNormalization", name, [x, scale, g.weight(f"{path}.bias", c.hidden)], axis=-1, epsilon=1e-5)


def rotate(g, path, x, heads):
    tables = ["rotary.cos", "rotary.sin"]
    return g.node("RotaryEmbedding", f"/{path}", [x, *tables], num_heads=heads)


def attention(g, c, path, x):
    size, bias = c.hidden // c.heads, c.family == "gpt"
    q = g.linear(f"{path}.q", x, c.hidden, c.hidden, bias)
    k = g.linear(f"{path}.k", x, c.hidden, c.kv_heads * size, bias)
    v = g.linear(f"{path}.v", x, c.hidden, c.kv_heads * size, bias)
    name = "/" + path.replace(".", "/")
    if c.family == "llama":
        q, k = rotate(g, name[1:] + "/rotate_q", q, c.heads), rotate(g, name[1:] + "/rotate_k", k, c.kv_heads)
    y = g.node("Attention", f"{name}/Attention", [q, k, v], is_causal=1, q_num_heads=c.heads, kv_num_heads=c.kv_heads)
    return g.linear(f"{path}.o", y, c.hidden, c.hidden, bias)


def mlp(g, c, path, x):
    name = "/" + path.replace(".", "/")
    if c.family == "gpt":
        y = g.linear(f"{path}.fc", x, c.hidden, c.ffn, True)
        y = g.node("Gelu", f"{name}/Gelu", [y], approximate="tanh")
        return g.linear(f"{path}.proj", y, c.ffn, c.hidden, True)
    gate = g.linear(f"{path}.gate", x, c.hidden, c.ffn, False)
    up = g.linear(f"{path}.up", x, c.hidden, c.ffn, False)
    y = g.node("Mul", f"{name}/silu", [gate, g.node("Sigmoid", f"{name}/Sigmoid", [gate])])
    y = g.node("Mul", f"{name}/Mul", [y, up])
    return g.linear(f"{path}.down", y, c.ffn, c.hidden, False)


def route(g, c, path, x):
    """Where tokens go, as in GShard (Lepikhin et al. 2020, algorithm 1): [group, token, expert * place] of zeros and
    ones, and the same times the router's weights. The places of an expert are taken in the order of the tokens."""
    group = min(c.group, c.seq)
    name, places = "/" + path.replace(".", "/"), int(c.capacity * group * c.top / c.experts)
    tokens, slots = group * c.top, c.experts * places
    constant = lambda tag, values: g.constant(f"{path}.{tag}", values)
    logits = g.linear(f"{path}.router", x, c.hidden, c.experts, False)
    logits = g.node("Cast", f"{name}/Cast", [logits], to=TensorProto.FLOAT)
    weights = g.node("Softmax", f"{name}/Softmax", [logits], axis=-1)
    best, expert = g.node("TopK", f"{name}/TopK", [weights, constant("top", [c.top])], [f"{name}/TopK_best", f"{name}/TopK_expert"], axis=-1), f"{name}/TopK_expert"
    total = g.node("ReduceSum", f"{name}/ReduceSum", [best, constant("last", [-1])], keepdims=1)
    best = g.node("Div", f"{name}/Div", [best, total])
    off_on = g.node("Constant", f"{name}/off_on", [], value=helper.make_tensor("off_on", TensorProto.FLOAT, [2], [0.0, 1.0]))
    one_hot = lambda tag, index, depth: g.node("OneHot", f"{name}/{tag}", [index, constant(tag, [depth]), off_on], axis=-1)
    chosen = g.node("Reshape", f"{name}/Reshape", [one_hot("OneHot", expert, c.experts), constant("rows", [0, tokens, c.experts])])
    axis = g.node("Constant", f"{name}/axis", [], value=helper.make_tensor("axis", TensorProto.INT64, [], [1]))
    before = g.node("CumSum", f"{name}/CumSum", [chosen, axis], exclusive=1)
    before = g.node("Mul", f"{name}/Mul", [before, chosen])
    place = g.node("ReduceSum", f"{name}/ReduceSum_1", [before, constant("experts", [-1])], keepdims=0)
    place = g.node("Cast", f"{name}/Cast_1", [place], to=TensorProto.INT64)
    # Places beyond the last are none: OneHot counts negative indices from the end, and these are not.
    place = g.node("Unsqueeze", f"{name}/Unsqueeze", [one_hot("OneHot_1", place, places), constant("expert_dim", [2])])
    chosen = g.node("Unsqueeze", f"{name}/Unsqueeze_1", [chosen, constant("place_dim", [3])])
    sent = g.node("Mul", f"{name}/Mul_1", [chosen, place])
    sent = g.node("Reshape", f"{name}/Reshape_1", [sent, constant("choices", [0, group, c.top, slots])])
    best = g.node("Unsqueeze", f"{name}/Unsqueeze_2", [best, constant("slot_dim", [3])])
    summed = constant("choice_dim", [2])
    joined = g.node("ReduceSum", f"{name}/ReduceSum_2", [g.node("Mul", f"{name}/Mul_2", [sent, best]), summed], keepdims=0)
    sent = g.node("ReduceSum", f"{name}/ReduceSum_3", [sent, summed], keepdims=0)
    cast = lambda tag, value: g.node("Cast", f"{name}/{tag}", [value], to=g.dtype)
    return cast("Cast_2", sent), cast("Cast_3", joined), places


def moe(g, c, path, x):
    """Tokens are copied to their experts' places, all experts multiply at once, and what they give is summed."""
    name = "/" + path.replace(".", "/")
    shape = lambda tag, values: g.constant(f"{path}.{tag}", values)
    x = g.node("Reshape", f"{name}/Reshape_6", [x, shape("groups", [-1, min(c.group, c.seq), c.hidden])])
    sent, joined, places = route(g, c, path, x)
    stack = lambda tag, value, rows, columns: g.node("MatMul", f"{name}/{tag}/MatMul", [value, g.weight(f"{path}.{tag}.weight", c.experts, rows, columns)])
    sent = g.node("Transpose", f"{name}/Transpose", [sent], perm=[0, 2, 1])
    x = g.node("Reshape", f"{name}/Reshape_2", [g.node("MatMul", f"{name}/MatMul", [sent, x]), shape("parted", [0, c.experts, places, c.hidden])])
    x = g.node("Transpose", f"{name}/Transpose_1", [x], perm=[1, 0, 2, 3])
    x = g.node("Reshape", f"{name}/Reshape_3", [x, shape("stacked", [c.experts, -1, c.hidden])])
    gate, up = stack("gate", x, c.hidden, c.ffn), stack("up", x, c.hidden, c.ffn)
    y = g.node("Mul", f"{name}/silu", [gate, g.node("Sigmoid", f"{name}/Sigmoid", [gate])])
    y = stack("down", g.node("Mul", f"{name}/Mul_3", [y, up]), c.ffn, c.hidden)
    y = g.node("Reshape", f"{name}/Reshape_4", [y, shape("unstacked", [c.experts, -1, places, c.hidden])])
    y = g.node("Transpose", f"{name}/Transpose_2", [y], perm=[1, 0, 2, 3])
    y = g.node("Reshape", f"{name}/Reshape_5", [y, shape("slots", [0, c.experts * places, c.hidden])])
    y = g.node("MatMul", f"{name}/MatMul_1", [joined, y])
    return g.node("Reshape", f"{name}/Reshape_7", [y, shape("sequences", [-1, c.seq, c.hidden])])


def block(g, c, layer, x):
    path = f"h.{layer}"
    y = attention(g, c, f"{path}.attn", normalise(g, c, f"{path}.ln_1", x))
    x = g.node("Add", f"/h/{layer}/Add", [x, y])
    y = (moe if c.experts else mlp)(g, c, f"{path}.mlp", normalise(g, c, f"{path}.ln_2", x))
    return g.node("Add", f"/h/{layer}/Add_1", [x, y])


def embed(g, c):
    x = g.node("Gather", "/wte/Gather", [g.weight("wte.weight", c.vocab, c.hidden), "input_ids"])
    if c.family == "gpt":
        return g.node("Add", "/Add", [x, g.weight("wpe.weight", c.seq, c.hidden)])
    # The tables of rotary positions are buffers: cos and sin of position times frequency.
    half = c.hidden // c.heads // 2
    for name, kind in (("rotary.cos", "Cos"), ("rotary.sin", "Sin")):
        angle = g.node("Mul", f"/{name}/Mul", [rotary_range(g, c.seq, [1, c.seq, 1]), rotary_range(g, half, [1, 1, half])])
        angle = g.node(kind, f"/{name}/{kind}", [angle])
        g.node("Cast", f"/{name}/Cast", [angle], [name], to=g.dtype)
    return x


def rotary_range(g, count, shape):
    """0, 1, … as a tensor of `shape`; the exact frequencies do not matter to a plan."""
    tag = f"range_{len(g.nodes)}"
    scalar = lambda name, value: g.node("Constant", f"/{tag}/{name}", [], value=helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
    values = g.node("Range", f"/{tag}/Range", [scalar("start", 0.0), scalar("limit", float(count)), scalar("delta", 1.0)])
    return g.node("Reshape", f"/{tag}/Reshape", [values, g.constant(f"{tag}_shape", shape)])


def build(c, dtype, data):
    g = Graph(dtype, data)
    x = embed(g, c)
    for layer in range(c.layers):
        x = block(g, c, layer, x)
    x = normalise(g, c, "ln_f", x)
    logits = g.linear("lm_head", x, c.hidden, c.vocab, False)
    logits = g.node("Cast", "/loss/Cast", [logits], to=TensorProto.FLOAT)
    logits = g.node("Reshape", "/loss/Reshape", [logits, g.constant("logits_shape", [-1, c.vocab])])
    labels = g.node("Reshape", "/loss/Reshape_1", ["labels", g.constant("labels_shape", [-1])])
    g.node("SoftmaxCrossEntropyLoss", "/loss/SoftmaxCrossEntropyLoss", [logits, labels], ["loss"])
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", c.seq]) for name in ("input_ids", "labels")]
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    graph = helper.make_graph(g.nodes, "transformer", ports, [loss], initializer=g.weights)
    return helper.make_model(graph, producer_name="sennit-samples", opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def stored(values, dtype):
    if dtype == TensorProto.FLOAT16:
        return values.astype("<f2")
    if dtype == TensorProto.BFLOAT16:  # the upper half of f32, rounded to nearest
        return ((values.view("<u4") + 0x8000) >> 16).astype("<u2")
    return values


def write_weights(model, path):
    """Normal with deviation 0.02, scales of normalisations 1."""
    random = numpy.random.default_rng(1)
    with open(path, "wb") as file:
        for tensor in model.graph.initializer:
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            is_scale = len(tensor.dims) == 1 and tensor.name.endswith("weight")
            values = numpy.ones(tensor.dims) if is_scale else random.normal(0, 0.02, tensor.dims)
            file.write(stored(values.astype("<f4"), tensor.data_type).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", choices=CONFIGS)
    parser.add_argument("output")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of weights and activations")
    for field in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "experts"):
        parser.add_argument("--" + field.replace("_", "-"), type=int, help="instead of the configuration's")
    parser.add_argument("--weights", action="store_true", help="write random weights too, for small variants")
    arguments = parser.parse_args()
    config = CONFIGS[arguments.config]
    given = {field.name: getattr(arguments, field.name, None) for field in dataclasses.fields(Config)}
    config = dataclasses.replace(config, **{name: value for name, value in given.items() if value})
    data = arguments.output.rsplit("/", 1)[-1] + ".data"
    model = build(config, DTYPES[arguments.dtype], data)
    if arguments.weights:
        write_weights(model, arguments.output + ".data")
    onnx.save(model, arguments.output)


if __name__ == "__main__":
    main()
