#!/usr/bin/env python3
"""Writes tests/golden/ggml_blocks.gguf by ggml's own Python package: a tensor of each type, and its values as fp32.

    pip install numpy gguf==0.19.0
    python scripts/gguf_golden.py tests/golden/ggml_blocks.gguf

Tensor NAME of [2, 512] has its values, by gguf.quants.dequantize, in NAME.values (F32). Types that the package does not
quantize hold random blocks with moderate scales. Q1_0 and Q2_0, which gguf 0.19 does not quantize, are
written here after ggml's block_q1_0 and block_q2_0.
tests/io/gguf_tensors_test.cpp reads the file, and writes it again byte for byte.
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

ROWS, COLS = 2, 512
rng = np.random.default_rng(7)


class Q2_0:
    name, value = "Q2_0", 42

    def __index__(self):
        return 42


Q2 = Q2_0()
gguf.constants.GGML_QUANT_SIZES[Q2] = (64, 18)


def random_blocks(kind, halves):
    """Blocks of random bytes, with fp16 numbers in [0.001, 0.1] at the byte offsets `halves`."""
    size, bytes_ = gguf.constants.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLS // size, bytes_), np.uint8)
    for at in halves:
        d = rng.uniform(0.001, 0.1, (len(blocks), 1)).astype(np.float16)
        blocks[:, at:at + 2] = d.view(np.uint8)
    return blocks.reshape(ROWS, -1)


def q2_0(x):
    g = x.reshape(ROWS, -1, 64)
    d = np.abs(g).max(-1).astype(np.float16)
    code = np.clip(np.rint(g / d[..., None].astype(np.float32)) + 1, 0, 3).astype(np.uint8)
    c = code.reshape(*code.shape[:2], 16, 4)
    packed = (c[..., 0] | c[..., 1] << 2 | c[..., 2] << 4 | c[..., 3] << 6).astype(np.uint8)
    raw = np.concatenate([d[..., None].view(np.uint8), packed], -1).reshape(ROWS, -1)
    return raw, ((code.astype(np.float32) - 1) * d[..., None].astype(np.float32)).reshape(ROWS, COLS)


def q1_0(x):
    g = x.reshape(ROWS, -1, 128)
    d = np.abs(g).mean(-1).astype(np.float16)
    raw = np.concatenate([d[..., None].view(np.uint8), np.packbits(g >= 0, axis=-1, bitorder="little")], -1).reshape(ROWS, -1)
    return raw, (np.where(g >= 0, 1, -1) * d[..., None].astype(np.float32)).reshape(ROWS, COLS)


w = gguf.GGUFWriter(sys.argv[1], "test")
w.add_uint8("test.uint8", 200), w.add_int8("test.int8", -7), w.add_uint16("test.uint16", 60000), w.add_int16("test.int16", -300)
w.add_uint32("test.uint32", 4000000000), w.add_int32("test.int32", -5), w.add_float32("test.float32", 0.1)
w.add_uint64("test.uint64", 2**64 - 1), w.add_int64("test.int64", -2**60), w.add_float64("test.float64", 1e300)
w.add_bool("test.bool", True), w.add_string("test.text", "Ünï\0 \N{GRINNING FACE}")
w.add_array("test.texts", ["a", "", "ĠĠ"]), w.add_array("test.ints", [1, -2, 3]), w.add_array("test.floats", [0.5, -1.25])

x = (rng.standard_normal((ROWS, COLS)) * 0.1).astype(np.float32)
x[:, :32] = 0  # a block of zeros
tensors = {"f32": (x, None, x), "f16": (x.astype(np.float16), None, x.astype(np.float16).astype(np.float32))}
for kind in (T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.TQ1_0, T.TQ2_0):
    raw = gguf.quants.quantize(x, kind)
    tensors[kind.name.lower()] = raw, kind, gguf.quants.dequantize(raw, kind)
for kind, halves in ((T.Q2_K, (80, 82)), (T.Q3_K, (108,)), (T.Q4_K, (0, 2)), (T.Q5_K, (0, 2)), (T.Q6_K, (208,))):
    raw = random_blocks(kind, halves)
    tensors[kind.name.lower()] = raw, kind, gguf.quants.dequantize(raw, kind)
raw, values = q2_0(x)
tensors["q2_0"] = raw, Q2, values
raw, values = q1_0(x)
tensors["q1_0"] = raw, T.Q1_0, values
for name, (raw, kind, values) in tensors.items():
    w.add_tensor(name, raw, raw_dtype=kind)
    w.add_tensor(name + ".values", values.astype(np.float32))
for name, kind in (("i8", np.int8), ("i16", np.int16), ("i32", np.int32), ("i64", np.int64), ("f64", np.float64)):
    w.add_tensor(name, rng.integers(-100, 100, (3, 5)).astype(kind))
w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
