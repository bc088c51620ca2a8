#!/usr/bin/env python3
"""Stands for the programs that scripts/gpu_check.sh runs; the name that it is called by says which one.

FAKE_CALLS: each call appends its command line. FAKE_MODES: JSON {name or "name last-argument": exit code | "hang" | text to say, with
exit code 1}. FAKE_SECONDS,
FAKE_BEST: what a training run says of itself. FAKE_DEVICE: what `bitgrad kernels` says of devices. Reports are made so that every
row of the table meets its aim: our products take 10 us (bits 1), bf16 takes 30 us.
"""
import json
import os
import sys

name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]


def option(key, default=None):
    return arguments[arguments.index(key) + 1] if key in arguments else default


def bench_gemm():
    m, n, k = (int(x) for x in option("--shape").split(","))
    rows = []
    for pair in (b for a, b in zip(arguments, arguments[1:]) if a == "--dtypes"):
        a, b = pair.split(",")
        head = dict(a=a, b=b, m=m, n=n, k=k, product=option("--product", "forward"))
        rows.append(dict(head, kernel="bf16 x bf16: gemm_bf16_cublaslt", us=30.0))
        if a == b == "int8":
            rows.append(dict(head, kernel="gemm_s8_s8_cublaslt", us=5.0))
        rows.append(dict(head, kernel=f"gemm_{a}_{b}", us=1.0 if a == "bint1" else 10.0))
    return dict(device="fake device", rows=rows)


def bench_kernels():
    return dict(copy_gb_s=1000.0, rows=[dict(family=family, what="a kernel", dtype="int8", layout="", gb_s=950.0, copy_share=share)
                                        for family in ("pack", "quantize", "optimizer", "elementwise", "reduce") for share in (0.99, 0.95)])


def bench_step():
    return dict(rows=[dict(layer=layer, shape=option("--shape"), ms=0.9, saved_bytes=1, rss_growth=1, parts=dict(update=0.2, requantize=0.1))
                      for layer in option("--layer", "").split(",")])


def bitgrad():
    if arguments[0] != "train":
        return print("gemm\n" + os.environ.get("FAKE_DEVICE", "cuda:0  fake device"))
    os.makedirs(option("--out"), exist_ok=True)
    with open(option("--out") + "/summary.json", "w") as file:
        json.dump(dict(status="finished", best_accuracy=float(os.environ.get("FAKE_BEST", "99.5")), last_accuracy=90.5,
                       state_hash=os.environ.get("FAKE_HASH", "5eed"),
                       seconds=float(os.environ.get("FAKE_SECONDS", "10"))), file, indent=1)


with open(os.environ["FAKE_CALLS"], "a") as calls:
    calls.write(" ".join([name] + arguments) + "\n")
modes = json.loads(os.environ.get("FAKE_MODES", "{}"))
mode = modes.get(name + " " + arguments[-1], modes.get(name, 0))
if mode == "hang":
    sys.exit(124)  # for fakes/timeout
if isinstance(mode, str):
    sys.exit(mode)
if mode != 0:
    print(("skipped: " if mode == 77 else "") + f"why {name} \"ended\" so")
    sys.exit(mode)
report = {"bench_gemm": bench_gemm, "bench_kernels": bench_kernels, "bench_step": bench_step, "bench_generate": lambda: dict(rows=[])}.get(name)
if report:
    with open(option("--json", os.devnull), "w") as file:
        json.dump(report(), file)
elif "--list-tags" in arguments:
    print("All available tags:\n" + "".join(f"   3  [#{file}_test]\n" for file in ("fragments", "pack", "train", "unaligned")))
elif name == "bitgrad":
    bitgrad()
