#!/usr/bin/env python3
"""The same training steps in PyTorch, the rivals of bench_step that live in another process.

  python scripts/bench_peers.py [--shape BATCH,IN,OUT ...] [--net tfc,sfc,lfc] [--batch 100] [--threads 1]
                                [--seconds 3] [--ours FILE] [--json FILE]

Needs a Python with torch (2.15 was measured) and nothing else. Every variant runs in a fresh process; the best of all
is the rival, never the slowest. --ours takes what `bench_step --json FILE` wrote on the same machine right before or
after, and adds our times and the ratios. Times are medians in ms: processor time of the thread for one thread (as
bench_step), wall time for more.

A layer: x fp32 (wants a gradient) -> sign with clip straight-through -> linear with signs of fp32 weights; the output's
gradient is given; Adam; weights clamped to [-1, 1]. Variants:
  textbook   sign(x), sign(w) as autograd functions in fp32, clip masks for both
  lean       the same values in fewer passes: no mask for weights (they are clamped), masks of bools, signs made
             directly in the compute dtype
in fp32, and in bf16 autocast with fp32 weights; eager and torch.compile (where a compiler is there); fused and foreach
Adam; malloc as it is, and told to keep memory; gradients set to None. A net: TFC, SFC, LFC of FINN as bench_step's,
with random images. Memory: resident growth from before the first tensor to the peak.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import torch_peers

# glibc: no mmap for each large tensor, nothing given back to the kernel.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_TOP_PAD_": "268435456"}
WIDTHS = {"tfc": 64, "sfc": 256, "lfc": 1024}


def layer_variants(compiler):
    for dtype in ("fp32", "bf16"):
        yield dict(form="textbook", dtype=dtype, malloc="default", adam="fused", compile=False)
        yield dict(form="textbook", dtype=dtype, malloc="keep", adam="fused", compile=False)
        yield dict(form="lean", dtype=dtype, malloc="default", adam="fused", compile=False)
        yield dict(form="lean", dtype=dtype, malloc="keep", adam="fused", compile=False)
        yield dict(form="lean", dtype=dtype, malloc="keep", adam="foreach", compile=False)
        if compiler:
            yield dict(form="textbook", dtype=dtype, malloc="keep", adam="fused", compile=True)
            yield dict(form="lean", dtype=dtype, malloc="keep", adam="fused", compile=True)


def net_variants(compiler):
    for adam in ("fused", "foreach"):
        yield dict(form="lean", dtype="fp32", malloc="default", adam=adam, compile=False)
    if compiler:
        yield dict(form="lean", dtype="fp32", malloc="default", adam="fused", compile=True)


# ---- one variant, in a process of its own -----------------------------------------------------------------------------


def status_bytes(key):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


def functions(torch, dtype):
    """Sign functions: textbook of x and w, lean of x, lean of w."""

    class Textbook(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x.abs() <= 1).to(g.dtype)

    class LeanX(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.abs() <= 1)
            return (x >= 0).to(dtype).mul_(2).sub_(1)

        @staticmethod
        def backward(ctx, g):
            return g.float().mul_(ctx.saved_tensors[0])

    class LeanW(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            return (w >= 0).to(dtype).mul_(2).sub_(1)

        @staticmethod
        def backward(ctx, g):
            return g.float()

    return Textbook.apply, LeanX.apply, LeanW.apply


def layer_step(torch, cell, dtype):
    textbook, lean_x, lean_w = functions(torch, dtype)
    batch, inputs, outputs = cell["shape"]
    sign_x, sign_w = (textbook, textbook) if cell["form"] == "textbook" else (lean_x, lean_w)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(outputs, inputs).uniform_(-1, 1))

        def forward(self, x):
            return torch.nn.functional.linear(sign_x(x), sign_w(self.weight))

    model = Layer()
    x = (torch.rand(batch, inputs) * 3 - 1.5).requires_grad_(True)
    gy = (torch.rand(batch, outputs) - 0.5) * 0.02
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **{cell["adam"]: True})
    run = torch.compile(model) if cell["compile"] else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=cell["dtype"] == "bf16"):
            y = run(x)
        y.backward(gy.to(y.dtype))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        x.grad = None
        with torch.no_grad():
            model.weight.clamp_(-1, 1)

    return step


def net_step(torch, cell, dtype):
    _, sign_x, sign_w = functions(torch, dtype)
    functional = torch.nn.functional
    width, batch = WIDTHS[cell["net"]], cell["batch"]
    sizes = [784, width, width, width, 10]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(
                torch.nn.Parameter(torch.empty(o, i).uniform_(-1, 1)) for i, o in zip(sizes, sizes[1:]))
            self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(o) for o in sizes[1:-1])
            self.last = torch.nn.BatchNorm1d(1, eps=1e-4)

        def forward(self, x):
            x = functional.dropout(sign_x(x), 0.2, True)
            for w, norm in zip(self.weights, self.norms):
                x = functional.dropout(sign_x(norm(functional.linear(x, sign_w(w)))), 0.2, True)
            x = functional.linear(x, sign_w(self.weights[-1]))
            return self.last(x.reshape(-1, 1)).reshape(x.shape)

    net = Net()
    x = torch.rand(batch, 784) * 2 - 1
    target = torch.full((batch, 10), -1.0)
    target[torch.arange(batch), torch.arange(batch) % 10] = 1.0
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, **{cell["adam"]: True})
    run = torch.compile(net) if cell["compile"] else net
    latent = [w.data for w in net.weights]

    def step():
        loss = (1 - run(x) * target).clamp_min(0).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch._foreach_clamp_min_(latent, -1)
        torch._foreach_clamp_max_(latent, 1)

    return step


def measure(step, seconds, clock):
    for _ in range(3):
        step()
    times = []
    begin = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - begin < seconds and len(times) < 2000):
        start = clock()
        step()
        times.append((clock() - start) * 1e3)
    return round(statistics.median(times), 4), len(times)


def run_cell(cell):
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    logging.disable(logging.WARNING)
    torch.set_num_threads(cell["threads"])
    torch.manual_seed(1)
    dtype = torch.bfloat16 if cell["dtype"] == "bf16" else torch.float32
    # What the libraries make once is not the layer's.
    small = torch.nn.Linear(64, 64)
    first = torch.optim.Adam(small.parameters(), fused=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=cell["dtype"] == "bf16"):
        small(torch.randn(64, 64)).float().sum().backward()
    first.step()
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass
    before = status_bytes("VmRSS")
    step = (net_step if "net" in cell else layer_step)(torch, cell, dtype)
    clock = time.thread_time if cell["threads"] == 1 else time.perf_counter
    ms, repeats = measure(step, cell["seconds"], clock)
    return dict(ms=ms, repeats=repeats, rss_growth=status_bytes("VmHWM") - before, torch=torch.__version__)


# ---- all variants ---------------------------------------------------------------------------------------------------------


def spawn(cell):
    environment = dict(os.environ, OMP_NUM_THREADS=str(cell["threads"]), MKL_NUM_THREADS=str(cell["threads"]))
    if cell["malloc"] == "keep":
        environment.update(KEEP)
    command = [sys.executable, os.path.abspath(__file__), "--cell", json.dumps(cell)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:  # a refusal is a result too
        return dict(error=(result.stderr.strip().splitlines() or ["no message"])[-1][:300])
    return json.loads(result.stdout.strip().splitlines()[-1])


def describe(row):
    text = f"{row['form']} {row['dtype']} {'compile' if row['compile'] else 'eager'} {row['adam']} malloc {row['malloc']}"
    return text.replace(" malloc default", "")


def add_ours(row, ours):
    """Our row of the same work with the ratios to the best in fp32 and in bf16, and to the smallest memory."""
    mine = []
    for candidate in ours.get("rows", []):
        same = candidate.get("net") == row["net"] if "net" in row else (
            "net" not in candidate and candidate["shape"] == row["shape"])
        if not same or candidate["layer"] != "binary" or candidate.get("threads", 1) != row["threads"]:
            continue
        if "net" in row and int(candidate["shape"].split(",")[0]) != row["batch"]:
            continue
        out = {k: candidate[k] for k in ("grad", "moments", "master", "fused", "ms", "rss_growth") if k in candidate}
        for dtype, best in row["best"].items():
            out["x_" + dtype] = round(best["ms"] / candidate["ms"], 2)
        if "rss_growth" in candidate and "textbook_rss" in row:
            out["textbook_rss_over_ours"] = round(row["textbook_rss"] / candidate["rss_growth"], 2)
            out["least_rss_over_ours"] = round(row["least_rss"] / candidate["rss_growth"], 2)
        mine.append(out)
    if mine:
        row["ours"] = mine


def summarize(row):
    good = [v for v in row["variants"] if "ms" in v]
    row["best"] = {}
    for dtype in ("fp32", "bf16"):
        of_dtype = [v for v in good if v["dtype"] == dtype]
        if of_dtype:
            best = min(of_dtype, key=lambda v: v["ms"])
            row["best"][dtype] = dict(ms=best["ms"], variant=describe(best))
    if "net" not in row and good:
        row["textbook_rss"] = next((v["rss_growth"] for v in good if v["form"] == "textbook"), None)
        row["least_rss"] = min(v["rss_growth"] for v in good)


def machine():
    names = {}
    with open("/proc/cpuinfo") as f:
        for line in f:
            key, _, value = line.partition(":")
            names.setdefault(key.strip(), value.strip())
    return dict(machine=names.get("model name", "unknown"),
                cpu=f"{names.get('vendor_id', '')} {names.get('cpu family', '')}/{names.get('model', '')}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cell", help=argparse.SUPPRESS)
    p.add_argument("--shape", action="append", help="BATCH,IN,OUT of a layer (512,4096,4096)")
    p.add_argument("--net", default=None, help="tfc,sfc,lfc; none for no net")
    p.add_argument("--batch", type=int, default=100, help="of the nets")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=3.0, help="of each variant")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--ours", help="what bench_step --json wrote")
    p.add_argument("--json", help="writes the report to this file too")
    a = p.parse_args()
    if a.cell:
        print(json.dumps(run_cell(json.loads(a.cell))))
        return 0
    shapes = [[int(n) for n in text.split(",")] for text in (a.shape or ([] if a.net else ["512,4096,4096"]))]
    nets = [] if a.net == "none" else (a.net.split(",") if a.net else ([] if a.shape else list(WIDTHS)))
    if any(len(s) != 3 or min(s) < 1 for s in shapes) or any(n not in WIDTHS for n in nets):
        p.error("expected --shape BATCH,IN,OUT and --net of " + ", ".join(WIDTHS))
    ours = json.load(open(a.ours)) if a.ours else {}
    compiler = not a.no_compile and shutil.which(os.environ.get("CXX", "g++")) is not None
    work = [dict(shape=s) for s in shapes] + [dict(net=n, batch=a.batch) for n in nets]
    report = dict(machine(), threads=a.threads, rows=[])
    for item in work:
        variants = (net_variants if "net" in item else layer_variants)(compiler)
        row = dict(item, threads=a.threads, variants=[])
        for variant in variants:
            result = dict(variant, **spawn(dict(item, threads=a.threads, seconds=a.seconds, **variant)))
            report.setdefault("torch", result.pop("torch", None))
            result.pop("torch", None)
            row["variants"].append(result)
            print(item, describe(result), result.get("ms", result.get("error")), file=sys.stderr, flush=True)
        if "shape" in row:
            row["shape"] = ",".join(str(n) for n in row["shape"])
        summarize(row)
        add_ours(row, ours)
        report["rows"].append(row)
    text = torch_peers.report_text(report)
    print(text)
    if a.json:
        with open(a.json, "w") as f:
            f.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
