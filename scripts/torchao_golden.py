#!/usr/bin/env python3
"""Writes tests/golden/torchao_0_18.json: what torchao 0.18 makes of known numbers, bit for bit, on CPU.

    pip install numpy torch "torchao==0.18.*"
    python scripts/torchao_golden.py tests/golden/torchao_0_18.json

tests/quant/torchao_test.cpp makes the same inputs and compares. The inputs come from a linear congruential generator
whose numbers are exact in fp32, so that the file holds results only; the adversarial blocks are kept as bits.
A case is [method, dtype, granularity, input, codes, scales, zeros, values]; the last four are the first 32 digits of the
SHA-256 of the little-endian bytes (codes as one byte each); for the input "blocks" codes, scales and zeros are the bytes
themselves, in hex.
"""
import hashlib
import json
import sys

import numpy as np
import torch
import torchao
from torchao.quantization.quant_primitives import (
    MappingType,
    _choose_qparams_affine_tinygemm,
    _dequantize_affine_tinygemm,
    _quantize_affine_tinygemm,
    choose_qparams_affine,
    dequantize_affine,
    quantize_affine,
)
from torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor import IntxUnpackedToInt8Tensor

ROWS, COLS = 64, 128
RANGES = {"int2": (-2, 1), "int4": (-8, 7), "int8": (-128, 127), "uint4": (0, 15), "uint8": (0, 255)}
MAPPINGS = {
    "affine": (MappingType.ASYMMETRIC, list(RANGES)),
    "symmetric": (MappingType.SYMMETRIC, ["int2", "int4", "int8"]),
    "symmetric_no_clip": (MappingType.SYMMETRIC_NO_CLIPPING_ERR, ["int2", "int4", "int8"]),
}
GRANULARITIES = {
    "tensor": lambda shape: shape,
    "channel(0)": lambda shape: (1, shape[1]),
    "channel(1)": lambda shape: (shape[0], 1),
    "token": lambda shape: (1, shape[1]),
    "group(32)": lambda shape: (1, 32),
    "group(64)": lambda shape: (1, 64),
    "group(0,32)": lambda shape: (32, 1),
}


def draws(seed, n):
    """24-bit numbers: the upper bits of state = state * 1664525 + 1013904223 mod 2^32."""
    out = np.empty(n, np.int64)
    state = seed
    for i in range(n):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = state >> 8
    return out


def generated(kind, seed):
    """A matrix [ROWS, COLS]; every number is exact in fp32."""
    n = ROWS * COLS
    r = draws(seed, 2 * n)
    first, second = r[0::2].astype(np.float64), r[1::2]
    numbers = {
        "uniform": lambda: (first - 2**23) * 2.0**-22,
        "spread": lambda: (first - 2**23) * 2.0 ** (-23 - (second >> 20)),
        "ties": lambda: (r[0::2] % 511 - 255) * 0.5,
        "negative": lambda: -(first + 1) * 2.0**-30,
    }[kind]()
    return numbers.astype(np.float32).reshape(ROWS, COLS)


def blocks():
    """Rows of 32 numbers that are hard in one way each."""
    u = (draws(9, 32 * 32).astype(np.float64) - 2**23).reshape(32, 32) * 2.0**-22
    one = np.zeros(32)
    one[17] = 1
    ramp = np.arange(32.0)
    rows = [
        0 * ramp, -0.0 * (1 + ramp), one, -one, one * 3.0e38, one * 2.0**-149, one * -(2.0**-126),
        0 * ramp + 0.3, 0 * ramp - 0.3, 0 * ramp + 1e-7, ramp * 1e-7, ramp * 4e-7, ramp * 5e-7, 1 + ramp * 1e-6,
        ramp - 127.5 + 96, ramp * 0.5 - 8, (ramp - 15.5) * 8.225806451612904, ramp / 31 * 255, -ramp / 31 * 255,
        u[0] * 2.0**125 / 2, abs(u[1]) * 2.0**126, -abs(u[2]) * 2.0**126, u[3] * 2.0**-120, u[4] * 2.0**-126,
        u[5] * 2.0**-145, abs(u[6]) * 2.0**-130, u[7] + 1000, u[8] - 1000, u[9] ** 15, np.where(ramp == 5, 300.0, u[10]),
        np.where(ramp % 2 == 0, 1.0, -1.0) * (1 + 2.0**-23), 1.5 + (ramp - 16) * 2.0**-23,
    ]  # fmt: skip
    return np.stack(rows).astype(np.float32)


def raw(tensor, as_type):
    return tensor.detach().contiguous().numpy().astype(as_type).tobytes()


def case(method, dtype, granularity, name, codes, scale, zero, values, zero_type):
    byte = np.uint8 if dtype.startswith("u") else np.int8
    parts = [raw(codes, byte), raw(scale, "<f4"), raw(zero, zero_type), raw(values, "<f4")]
    digests = [hashlib.sha256(p).hexdigest()[:32] for p in parts]
    plain = [p.hex() for p in parts[:3]] if name == "blocks" else digests[:3]
    return [method, dtype, granularity, name, *plain, digests[3]]


def affine_cases(name, x):
    for method, (mapping, dtypes) in MAPPINGS.items():
        for dtype in dtypes:
            qmin, qmax = RANGES[dtype]
            store = torch.uint8 if qmin == 0 else torch.int8
            for granularity, block_of in GRANULARITIES.items():
                if name == "blocks" and granularity != "token":
                    continue
                block = block_of(tuple(x.shape))
                s, z = choose_qparams_affine(x, mapping, block, store, qmin, qmax)
                q = quantize_affine(x, block, s, z, store, qmin, qmax)
                v = dequantize_affine(q, block, s, z, store, qmin, qmax)
                yield case(method, dtype, granularity, name, q, s, z, v, "<i4")


def int4wo_cases(name, x):
    """torchao's int4 weight only, tinygemm form: codes 0 .. 15, real zero point m = low + 8 s, eps 1e-6."""
    for size in (32, 64, 128):
        if size > x.shape[1]:
            continue
        args = ((1, size), torch.int32, 0, 15)
        s, m = _choose_qparams_affine_tinygemm(x, MappingType.ASYMMETRIC, *args, 1e-6)
        q = _quantize_affine_tinygemm(x, args[0], s, m, *args[1:])
        v = _dequantize_affine_tinygemm(q, args[0], s, m, *args[1:])
        yield case("int4wo", "int4", f"group({size})", name, q - 8, s, m, v, "<f4")


def cases_8da4w(name, x):
    """The weight class of Int8DynamicActivationIntxWeightConfig, and its quantizer of activations."""
    w = IntxUnpackedToInt8Tensor.from_hp(x, (1, 32), torch.int4, mapping_type=MappingType.SYMMETRIC)
    yield case("8da4w_weight", "int4", "group(32)", name, w.qdata, w.scale, w.zero_point, w.dequantize(), "<i4")
    block = (1, x.shape[1])
    s, z = choose_qparams_affine(x, MappingType.ASYMMETRIC, block, torch.int8, -128, 127, zero_point_dtype=torch.int8)
    q = quantize_affine(x, block, s, z, torch.int8, -128, 127)
    v = dequantize_affine(q, block, s, z, torch.int8, -128, 127)
    yield case("8da4w_activation", "int8", "token", name, q, s, z, v, "<i4")


def main(path):
    assert torchao.__version__.startswith("0.18."), f"torchao: got {torchao.__version__}, expected 0.18"
    torch.set_num_threads(1)
    inputs = {kind: generated(kind, seed) for seed, kind in enumerate(["uniform", "spread", "ties", "negative"], 1)}
    inputs["blocks"] = blocks()
    lines = []
    for name, numbers in inputs.items():
        x = torch.from_numpy(numbers)
        for maker in (affine_cases, int4wo_cases, cases_8da4w):
            lines += [json.dumps(c) for c in maker(name, x)]
    head = {"torch": torch.__version__.split("+")[0], "torchao": torchao.__version__, "rows": ROWS, "cols": COLS}
    with open(path, "w") as out:
        out.write("{\n" + "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()))
        out.write(f'"blocks": "{inputs["blocks"].astype("<f4").tobytes().hex()}",\n"cases": [\n')
        out.write(",\n".join(lines) + "\n]\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
