"""A GGUF model of families llama, bitnet and gpt2 in double precision (pip packages gguf and numpy).

  python gguf_twin.py MODEL.gguf REQUEST.json

REQUEST.json: {"paths": [[id, ...], ...], "first": F, "runs": [{"inputs": NAME, "copies": K}, ...]}; all paths have one
length. Writes JSON: for each run {"log_probabilities": [of each path [after each of its ids from F on [of each id]]],
"spread": [of each path [after each of its ids from F on]]}. Exit status 77: a package is missing.

inputs: how the inputs of packed weights are rounded.
  none     not at all
  client   as llama.cpp rounds them for the type of the weight. Q4_0, Q8_0, Q2_0, Q1_0: blocks of 32 (Q8_0), codes by the fp32
           scale, values by its fp16. TQ1_0, TQ2_0: blocks of 256 (Q8_K), fp32 scale, the largest element becomes -127.
           gelu is gelu_tanh of fp16(x), rounded to fp16.
  token    int8 absmax a row, fp32 scale
  token16  int8 absmax a row, fp16 scale
spread: what errors of fp32 can do. A number near a tie becomes another code where it is a little off, and a scale another
fp16 number. K copies, in which each number that will be rounded is first multiplied by 1 + u, u uniform in +-2^-19: the largest
difference of a log-probability from that without noise. 2^-19 is 8 errors of fp32 in one direction.
"""
import json
import math
import sys

try:
    import gguf
    import numpy as np
except ImportError:
    sys.exit(77)

T = gguf.GGMLQuantizationType
NOISE = 2.0**-19


def know_q2_0():
    """Type 42, a block of 64 in 18 bytes: fp16 d, then element j in bits 2 (j % 4) of byte j / 4; d * (code - 1)."""
    if any(int(t) == 42 for t in T):
        return
    made = int.__new__(T, 42)
    made._name_, made._value_ = "Q2_0", 42
    T._value2member_map_[42] = made
    gguf.constants.GGML_QUANT_SIZES[made] = (64, 18)


def values(tensor):
    kind = int(tensor.tensor_type)
    if kind == 41:  # Q1_0, 128 elements in 18 bytes: fp16 d, then bit j % 8 of byte j / 8; d or -d
        raw = tensor.data.reshape(-1, 18)
        d = raw[:, :2].copy().view(np.float16).astype(np.float64)
        signs = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").astype(np.float64) * 2 - 1
        return (d * signs).reshape(tensor.shape[::-1])
    if kind == 42:
        raw = tensor.data.reshape(-1, 18)
        d = raw[:, :2].copy().view(np.float16).astype(np.float64)
        codes = (raw[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
        return (d * (codes.reshape(-1, 64).astype(np.float64) - 1)).reshape(tensor.shape[::-1])
    if kind in (int(T.F32), int(T.F16)):
        return tensor.data.astype(np.float64)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape(tensor.shape[::-1])


def int8_rows(x, fp16):
    s = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    s = s.astype(np.float16).astype(np.float32) if fp16 else s
    s = np.maximum(s, np.float32(2.0**-24 if fp16 else 2.0**-126))
    return np.clip(np.rint(x * (np.float32(1) / s)), -127, 127) * s.astype(np.float64)


def blocks_of_32(x):
    g = x.reshape(x.shape[:-1] + (-1, 32))
    m = np.abs(g).max(-1, keepdims=True)
    r = np.where(m == 0, np.float32(0), np.float32(127) / np.where(m == 0, np.float32(1), m))
    d = (m / np.float32(127)).astype(np.float16).astype(np.float64)
    return (np.rint(g * r) * d).reshape(x.shape)


def blocks_of_256(x):
    g = x.reshape(x.shape[:-1] + (-1, 256))
    top = np.take_along_axis(g, np.abs(g).argmax(-1)[..., None], -1)
    r = np.float32(-127) / np.where(top == 0, np.float32(1), top)
    return (np.minimum(127, np.rint(g * r)) * (np.float32(1) / r).astype(np.float64)).reshape(x.shape)


def rounded(x, kind, inputs, noise):
    x = noise(x).astype(np.float32)
    if inputs == "none":
        return x.astype(np.float64)
    if inputs != "client":
        return int8_rows(x, inputs == "token16")
    return blocks_of_256(x) if kind in (int(T.TQ1_0), int(T.TQ2_0)) else blocks_of_32(x)


class Twin:
    def __init__(self, path, inputs, noise=0.0):
        """noise: every number that is rounded is first multiplied by 1 + u, u uniform in [-noise, noise]."""
        reader = gguf.GGUFReader(path)
        self.inputs = inputs
        draws = np.random.default_rng(1)
        self.noise = lambda x: x * (1 + noise * draws.uniform(-1, 1, x.shape)) if noise else x
        self.arch = reader.get_field("general.architecture").contents()
        self.tensors = {t.name: (values(t), int(t.tensor_type)) for t in reader.tensors}

        def key(name):
            return reader.get_field(f"{self.arch}.{name}").contents()

        self.blocks, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv")
        self.eps = key("attention.layer_norm_epsilon" if self.arch == "gpt2" else "attention.layer_norm_rms_epsilon")
        self.gelu = reader.get_field("bitgrad.activation").contents()
        self.base = None if self.arch == "gpt2" else key("rope.freq_base")

    def has(self, name):
        return name in self.tensors

    def linear(self, name, x):
        w, kind = self.tensors[name + ".weight"]
        if kind not in (int(T.F32), int(T.F16)):
            x = rounded(x, kind, self.inputs, self.noise)
        y = x @ w.T
        if self.has(name + ".scale"):
            y = y * self.tensors[name + ".scale"][0]
        return y + self.tensors[name + ".bias"][0] if self.has(name + ".bias") else y

    def norm(self, name, x):
        if self.arch == "gpt2":
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.tensors[name + ".weight"][0]
        return y + self.tensors[name + ".bias"][0] if self.has(name + ".bias") else y

    def rope(self, x):
        """[paths, rows, heads, d]: pairs (2i, 2i + 1) of llama, (i, i + d / 2) of bitnet."""
        if self.base is None:
            return x
        d = x.shape[-1]
        angle = np.arange(x.shape[1])[:, None] * self.base ** (-np.arange(0, d, 2) / d)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        y = np.empty_like(x)
        first, second = (slice(0, d // 2), slice(d // 2, d)) if self.arch == "bitnet" else (slice(0, d, 2), slice(1, d, 2))
        u, v = x[..., first], x[..., second]
        y[..., first], y[..., second] = u * c - v * s, u * s + v * c
        return y

    def activation(self, block, x):
        if self.arch != "gpt2":
            gate = self.linear(block + "ffn_gate", x)
            return gate / (1 + np.exp(-gate)) * self.linear(block + "ffn_up", x)
        x = self.linear(block + "ffn_up", x)
        if self.inputs == "client":
            x = self.noise(x).astype(np.float16).astype(np.float64)
        if self.inputs != "client" and self.gelu == "gelu":
            return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))
        y = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))
        return self.noise(y).astype(np.float16).astype(np.float64) if self.inputs == "client" else y

    def attention(self, block, x):
        shape = x.shape[:2]
        if self.arch == "gpt2":
            q, k, v = np.split(self.linear(block + "attn_qkv", x), 3, -1)
        else:
            q, k, v = (self.linear(block + name, x) for name in ("attn_q", "attn_k", "attn_v"))
        q = self.rope(q.reshape(shape + (self.heads, -1)))
        k = self.rope(k.reshape(shape + (self.kv_heads, -1)))
        v = v.reshape(shape + (self.kv_heads, -1))
        k, v = (np.repeat(t, self.heads // self.kv_heads, 2) for t in (k, v))
        s = np.einsum("nshd,nthd->nhst", q, k) / np.sqrt(q.shape[-1]) + np.triu(np.full((shape[1],) * 2, -np.inf), 1)
        s = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("nhst,nthd->nshd", s / s.sum(-1, keepdims=True), v).reshape(shape + (-1,))

    def log_probabilities(self, paths):
        x = self.tensors["token_embd.weight"][0][paths]
        if self.has("position_embd.weight"):
            x = x + self.tensors["position_embd.weight"][0][: x.shape[1]]
        for n in range(self.blocks):
            block = f"blk.{n}."
            y = self.attention(block, self.norm(block + "attn_norm", x))
            x = x + self.linear(block + "attn_output", self.norm(block + "attn_sub_norm", y) if self.arch == "bitnet" else y)
            y = self.activation(block, self.norm(block + "ffn_norm", x))
            x = x + self.linear(block + "ffn_down", self.norm(block + "ffn_sub_norm", y) if self.arch == "bitnet" else y)
        z = self.norm("output_norm", x)
        z = self.linear("output" if self.has("output.weight") else "token_embd", z)
        z = z - z.max(-1, keepdims=True)
        return z - np.log(np.exp(z).sum(-1, keepdims=True))


know_q2_0()
with open(sys.argv[2]) as file:
    request = json.load(file)
paths, first, answers = np.array(request["paths"]), request["first"], []
for run in request["runs"]:
    plain = Twin(sys.argv[1], run["inputs"]).log_probabilities(paths)[:, first:]
    noisy, spread = Twin(sys.argv[1], run["inputs"], NOISE), np.zeros(plain.shape[:2])
    for _ in range(run["copies"]):
        spread = np.maximum(spread, np.abs(noisy.log_probabilities(paths)[:, first:] - plain).max(-1))
    answers.append({"log_probabilities": plain.tolist(), "spread": spread.tolist()})
json.dump(answers, sys.stdout)
