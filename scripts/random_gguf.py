#!/usr/bin/env python3
"""Writes a decoder with random weights as a GGUF file, for measurements of speed and memory (Python package numpy).

    python scripts/random_gguf.py big.gguf --shape bitnet2b
    python scripts/random_gguf.py t2.gguf --layers 16 --dim 1536 --heads 24 --ffn 4096 --type TQ2_0

Weights are random blocks of --type, such that values have a standard deviation of about 0.02; norms are 1. The table of ids, which is the head too, is of --table. The file has no words: prompts are ids.
"""
import argparse
import struct

import numpy as np

# Name: number of the type, elements and bytes of a block, standard deviation of codes. Blocks begin with an fp16 scale,
# TQ2_0 ends with it.
TYPES = {"F32": (0, 1, 4, 0), "F16": (1, 1, 2, 0), "Q4_0": (2, 32, 18, 4.6), "Q8_0": (8, 32, 34, 74), "TQ2_0": (35, 256, 66, 0.8),
         "Q1_0": (41, 128, 18, 1)}
SHAPES = {"bitnet2b": dict(arch="bitnet", layers=30, dim=2560, heads=20, kv_heads=5, ffn=6912, vocabulary=128256, context=4096,
                           rope=500000.0),
          "bonsai1.7b": dict(arch="qwen3", layers=28, dim=2048, heads=16, kv_heads=8, ffn=6144, vocabulary=151936, context=4096,
                             rope=1000000.0)}
STRING, ALIGN = 8, 32


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, value):
    kinds = {int: (4, "<I"), float: (6, "<f")}
    if isinstance(value, str):
        return text(name) + struct.pack("<I", STRING) + text(value)
    kind, form = kinds[type(value)]
    return text(name) + struct.pack("<I", kind) + struct.pack(form, value)


def blocks(rng, kind, count):
    """Bytes of `count` elements."""
    _, elements, size, deviation = TYPES[kind]
    if elements == 1:
        dtype = np.float32 if kind == "F32" else np.float16
        return (rng.standard_normal(count, np.float32) * np.float32(0.02)).astype(dtype).tobytes()
    out = rng.integers(0, 256, (count // elements, size), np.uint8)
    scale = (rng.uniform(0.5, 1.5, (len(out), 1)) * 0.02 / deviation).astype(np.float16).view(np.uint8)
    if kind == "TQ2_0":  # fields of two bits, of which 3 is no code
        codes = np.array([a | b << 2 | c << 4 | d << 6 for a in range(3) for b in range(3) for c in range(3) for d in range(3)], np.uint8)
        out[:, :64] = codes[out[:, :64] % 81]
        out[:, 64:] = scale
    else:
        out[:, :2] = scale
    return out.tobytes()


def tensors(o):
    """(name, rows or None of a norm, columns, type) of each."""
    head = o.dim // o.heads
    yield "token_embd.weight", o.vocabulary, o.dim, o.table
    for n in range(o.layers):
        sub = [("attn_sub_norm", o.dim), ("ffn_sub_norm", o.ffn)] if o.arch == "bitnet" else []
        if o.arch == "qwen3":
            sub = [("attn_q_norm", head), ("attn_k_norm", head)]
        for name, size in [("attn_norm", o.dim), ("ffn_norm", o.dim), *sub]:
            yield f"blk.{n}.{name}.weight", None, size, "F32"
        for name, rows, cols in [("attn_q", o.dim, o.dim), ("attn_k", o.kv_heads * head, o.dim), ("attn_v", o.kv_heads * head, o.dim),
                                 ("attn_output", o.dim, o.dim), ("ffn_gate", o.ffn, o.dim), ("ffn_up", o.ffn, o.dim), ("ffn_down", o.dim, o.ffn)]:
            yield f"blk.{n}.{name}.weight", rows, cols, o.type
    yield "output_norm.weight", None, o.dim, "F32"


def head_of_file(o, listed):
    keys = {"general.architecture": o.arch, "general.type": "model", "general.name": f"random {o.layers}x{o.dim}",
            f"{o.arch}.context_length": o.context, f"{o.arch}.embedding_length": o.dim, f"{o.arch}.block_count": o.layers,
            f"{o.arch}.feed_forward_length": o.ffn, f"{o.arch}.attention.head_count": o.heads,
            f"{o.arch}.attention.head_count_kv": o.kv_heads, f"{o.arch}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{o.arch}.rope.dimension_count": o.dim // o.heads, f"{o.arch}.rope.freq_base": o.rope, f"{o.arch}.vocab_size": o.vocabulary,
            "tokenizer.ggml.model": "no_vocab"}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(keys)) + b"".join(key(k, v) for k, v in keys.items())
    at = 0
    for name, rows, cols, kind in listed:
        number, elements, size, _ = TYPES[kind]
        sides = [cols] if rows is None else [cols, rows]
        if cols % elements:
            raise SystemExit(f"random_gguf.py: {name}: got rows of {cols}, expected a multiple of {elements}, a block of {kind}")
        out += text(name) + struct.pack("<I", len(sides)) + struct.pack(f"<{len(sides)}Q", *sides) + struct.pack("<IQ", number, at)
        at += -(-int(np.prod(sides)) // elements * size // ALIGN) * ALIGN
    return out


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("out")
    args.add_argument("--shape", choices=list(SHAPES), help="sizes of a known model")
    args.add_argument("--arch", choices=["llama", "bitnet", "qwen3"], default="llama")
    for name, size in dict(layers=12, dim=768, heads=12, kv_heads=0, ffn=2048, vocabulary=256, context=2048).items():
        args.add_argument(f"--{name}", type=int, default=size)
    args.add_argument("--rope", type=float, default=10000.0)
    args.add_argument("--type", choices=list(TYPES), default="TQ2_0", help="of the matrices of blocks")
    args.add_argument("--table", choices=list(TYPES), default="F16")
    args.add_argument("--seed", type=int, default=1)
    args.set_defaults(**SHAPES.get(args.parse_known_args()[0].shape, {}))
    o = args.parse_args()
    o.kv_heads = o.kv_heads or o.heads
    listed, rng = list(tensors(o)), np.random.default_rng(o.seed)
    with open(o.out, "wb") as file:
        file.write(head_of_file(o, listed))
        for _, rows, cols, kind in listed:
            file.write(b"\0" * (-file.tell() % ALIGN))
            if rows is None:
                file.write(np.ones(cols, np.float32).tobytes())
                continue
            part = max(1, (1 << 24) // cols)
            for begin in range(0, rows, part):
                file.write(blocks(rng, kind, min(part, rows - begin) * cols))
        file.write(b"\0" * (-file.tell() % ALIGN))


main()
