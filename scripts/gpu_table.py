#!/usr/bin/env python3
"""The table of a GPU: what | ours | rival | ratio | must | aim, from the results that scripts/gpu_check.sh collected.

    scripts/gpu_table.py FOLDER [--shape M,N,K] [--long M,N,K] [--step BATCH,IN,OUT]

Reads bench_*.json, peers.jsonl and train.jsonl of FOLDER as far as they are there, prints the table and writes
table.jsonl, a JSON line a row. The rival of a product is the fastest bf16 product of that shape, by cuBLASLt in the
same process or by PyTorch; of a step PyTorch's in bf16, or else the sum of its three products by cuBLASLt.
Verdicts: aim, must, below, missing. Exit code: rows with a must that are below or missing, at most 100.
"""
import argparse
import json
import os
import sys

FORWARD = "forward"


class Results:
    """Everything that lies in a folder of results."""

    def __init__(self, folder):
        self.folder = folder
        self.products = [r for name in ("products", "long", "gx", "gw") for r in self.rows(f"bench_{name}.json")]
        self.bandwidth = self.rows("bench_kernels.json")
        self.steps = self.rows("bench_steps.json")
        self.peers = self.lines("peers.jsonl")
        self.runs = {line["train"]: line for line in self.lines("train.jsonl") if "train" in line}

    def report(self, name):
        try:
            with open(os.path.join(self.folder, name)) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def rows(self, name):
        return self.report(name).get("rows", [])

    def lines(self, name):
        """The objects of a file of lines; a line that is torn is left out."""
        found = []
        try:
            with open(os.path.join(self.folder, name), errors="replace") as file:
                for line in file:
                    if line.startswith("{"):
                        try:
                            found.append(json.loads(line))
                        except ValueError:
                            pass
        except OSError:
            pass
        return found


def microseconds(x):
    return f"{x:.1f} us" if x < 10000 else f"{x / 1000:.2f} ms"


def row(what, ours="", rival="", ratio=None, must=None, aim=None, missing=""):
    """`ratio` is ours against the bar: higher is better."""
    if ratio is None:
        verdict = "missing" + (f": {missing}" if missing else "")
    elif must is None:
        verdict = ""
    else:
        verdict = "aim" if ratio >= aim else "must" if ratio >= must else "below"
    return dict(what=what, ours=ours, rival=rival, ratio=ratio, must=must, aim=aim, verdict=verdict)


# ---- products -------------------------------------------------------------------------------------------------------------


def of_shape(rows, shape, product=FORWARD):
    return [r for r in rows if [r.get("m"), r.get("n"), r.get("k")] == shape and r.get("product") == product]


def is_rival(r):
    return r["kernel"].startswith("bf16 x bf16")


def fastest_bf16(results, shape, product=FORWARD):
    """(us, name) of the fastest bf16 product, of cuBLASLt or of PyTorch; None where neither was measured."""
    found = [(r["us"], r["kernel"].split(": ")[-1]) for r in of_shape(results.products, shape, product)
             if is_rival(r) and "cublaslt" in r["kernel"]]
    found += [(r["us"], r["kernel"]) for r in of_shape(results.peers, shape, product)
              if r["a"] == r["b"] == "bf16" and "us" in r]
    return min(found) if found else None


def fastest_ours(results, shape, a, b, product=FORWARD):
    found = [(r["us"], r["kernel"]) for r in of_shape(results.products, shape, product)
             if (r["a"], r["b"]) == (a, b) and not is_rival(r) and "cublaslt" not in r["kernel"]]
    return min(found) if found else None


def product_row(results, what, shape, a, b, must=None, aim=None, product=FORWARD):
    ours, rival = fastest_ours(results, shape, a, b, product), fastest_bf16(results, shape, product)
    what = f"{what}, {'x'.join(str(n) for n in shape)}" + ("" if product == FORWARD else f", {product}")
    if ours is None or rival is None:
        return row(what, must=must, aim=aim, missing="no such product" if ours is None else "no cuBLASLt, no torch")
    return row(what, f"{microseconds(ours[0])} {ours[1]}", f"{microseconds(rival[0])} {rival[1]}", rival[0] / ours[0],
               must, aim)


def weight_row(results, bits, b, shape):
    ours, s8 = fastest_ours(results, shape, "int8", b), fastest_ours(results, shape, "int8", "int8")
    what = f"W{bits} x A8 beside own s8"
    if ours is None or s8 is None:
        return row(what, must=0.85, aim=0.97, missing="no such product")
    return row(what, f"{microseconds(ours[0])} {ours[1]}", f"{microseconds(s8[0])} {s8[1]}", s8[0] / ours[0], 0.85, 0.97)


def other_rows(results, shape):
    """Rivals in int8 and fp8, without a bar."""
    rival = fastest_bf16(results, shape)
    if rival is None:
        return
    others = [r for r in of_shape(results.products, shape) if "cublaslt" in r["kernel"] and not is_rival(r)]
    others += [r for r in of_shape(results.peers, shape) if r["a"] != "bf16" and "us" in r]
    for r in others:
        yield row(f"beside: {r['a']} x {r['b']} by {r['kernel']}", microseconds(r["us"]),
                  f"{microseconds(rival[0])} {rival[1]}", rival[0] / r["us"])


# ---- memory-bound kernels, steps, training --------------------------------------------------------------------------------


def bandwidth_row(results, family, must=None, aim=None):
    found = sorted((r for r in results.bandwidth if r["family"] == family), key=lambda r: r["copy_share"])
    what = f"{family} kernels, share of copy bandwidth"
    if not found:
        return row(what, must=must, aim=aim, missing="no bench_kernels")
    low, middle = found[0], found[len(found) // 2]["copy_share"]
    share = low["copy_share"]
    return row(f"{what}: lowest of {len(found)} (middle {100 * middle:.0f} %)",
               f"{low['gb_s']:.0f} GB/s {low['what']} {low['dtype']} {low['layout']}".rstrip(),
               f"{low['gb_s'] / share:.0f} GB/s copy", share, must, aim)


def step_products(batch, n_in, n_out):
    """Shape and kind of the three products of a layer."""
    return ([batch, n_out, n_in], FORWARD), ([batch, n_in, n_out], "gx"), ([n_out, n_in, batch], "gw")


def step_rival(results, kind, shape):
    """(ms, name) of PyTorch's fastest step; of the products alone also cuBLASLt's three."""
    text = ",".join(str(n) for n in shape)
    found = [(r["ms"], r["variant"]) for r in results.peers
             if r.get("step") == text and r["kind"] == kind and "ms" in r]
    if found:
        return min(found)
    batch, n_in, n_out = shape
    parts = [fastest_bf16(results, *part) for part in step_products(batch, n_in, n_out)]
    if kind != "products" or None in parts:
        return None
    return sum(us for us, _ in parts) / 1000, "three products by cuBLASLt"


def step_rows(results, layer, name, shape, must, aim):
    text = ",".join(str(n) for n in shape)
    found = [r for r in results.steps if r["layer"] == layer and r["shape"] == text]
    for kind, title in (("products", "forward and backward"), ("adam", "whole step with Adam")):
        what = f"step {text}, {name}: {title}"
        ours = None
        if found and (kind == "adam" or "update" in found[0].get("parts", {})):
            parts = found[0].get("parts", {})
            ours = found[0]["ms"] - (parts["update"] + parts["requantize"] if kind == "products" else 0)
        rival = step_rival(results, kind, shape)
        if ours is None or rival is None:
            yield row(what, must=must, aim=aim, missing="no bench_step" if ours is None else "no torch")
        else:
            yield row(what, f"{ours:.3f} ms", f"{rival[0]:.3f} ms {rival[1]}", rival[0] / ours, must, aim)


def train_row(results, net, title):
    run = results.runs.get(net)
    what = f"{title}: best accuracy"
    if run is None or run.get("best") is None:
        return dict(row(what, missing="not trained"), must="published - 0.3")
    verdict = "aim" if run["best"] >= run["published"] else "must" if run["best"] >= run["bar"] else "below"
    return dict(row(f"{what}, {run['epochs']} of {run['published_epochs']} epochs", f"{run['best']:.2f} %",
                    f"{run['published']:.2f} % published"),
                must=run["bar"], aim=run["published"], verdict=verdict)


def table(results, shape, long, step):
    yield product_row(results, "s8 -> bf16 with scales", shape, "int8", "int8", 1.5, 1.9)
    yield product_row(results, "b1 -> bf16", shape, "bint1", "bint1", 7, 12)
    yield product_row(results, "b1 -> bf16", long, "bint1", "bint1", 9, 15)
    for bits, b in ((1, "bint1"), (2, "int2"), (4, "int4")):
        yield weight_row(results, bits, b, shape)
    yield product_row(results, "bf16 x W4", shape, "bf16", "int4", 0.3, 0.5)
    yield product_row(results, "fp32 x W4", shape, "fp32", "int4", 0.12, 0.2)
    for family in ("pack", "quantize", "optimizer"):
        yield bandwidth_row(results, family, 0.7, 0.9)
    yield from step_rows(results, "w8a8", "all s8", step, 1.3, 1.85)
    yield from step_rows(results, "binary", "W1A1 forward, s8 backward", step, 1.6, 2.4)
    for net, title in (("tfc", "MNIST TFC"), ("sfc", "MNIST SFC"), ("lfc", "MNIST LFC"), ("mlp4096", "MNIST 3x4096 BNN MLP"),
                       ("cnv", "CIFAR-10 CNV"), ("resnet20", "CIFAR-10 ResNet-20 of IR-Net")):
        yield train_row(results, net, title)
    for family in ("elementwise", "reduce"):
        yield bandwidth_row(results, family)
    for product_shape, product in step_products(*step)[1:]:
        yield product_row(results, "s8 -> bf16 with scales", product_shape, "int8", "int8", product=product)
    yield from other_rows(results, shape)


# ---- printing -------------------------------------------------------------------------------------------------------------


def number(x):
    return "" if x is None else x if isinstance(x, str) else f"{x:g}" if isinstance(x, int) else f"{x:.2f}"


def print_table(rows):
    titles = ["what", "ours", "rival", "ratio", "must", "aim", "verdict"]
    lines = [titles] + [[number(r[t]) for t in titles] for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    for i, line in enumerate(lines):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |")
        if i == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def ceilings(results, shape):
    report = results.report("bench_products.json")
    copy = results.report("bench_kernels.json").get("copy_gb_s", report.get("copy_gb_s"))
    bf16 = fastest_bf16(results, shape)
    yield f"device: {report.get('device', 'unknown')}"
    yield f"copy: {copy:.0f} GB/s read and written" if copy else "copy: missing"
    if bf16 is not None:
        yield f"bf16: {2e-6 * shape[0] * shape[1] * shape[2] / bf16[0]:.0f} TFLOP/s, {bf16[1]}"
    else:
        yield "bf16: missing: no cuBLASLt, no torch"


def parse_shape(text):
    parts = text.split(",")
    if len(parts) != 3 or not all(p.isdigit() for p in parts):
        raise argparse.ArgumentTypeError(f"got '{text}', expected three whole numbers such as 8192,4096,4096")
    return [int(p) for p in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--shape", type=parse_shape, default=[8192, 4096, 4096])
    parser.add_argument("--long", type=parse_shape, default=[8192, 4096, 16384])
    parser.add_argument("--step", type=parse_shape, default=[8192, 4096, 4096])
    args = parser.parse_args()
    results = Results(args.folder)
    for line in ceilings(results, args.shape):
        print(line)
    print()
    rows = list(table(results, args.shape, args.long, args.step))
    print_table(rows)
    with open(os.path.join(args.folder, "table.jsonl"), "w") as file:
        for r in rows:
            file.write(json.dumps(r) + "\n")
    failed = [r for r in rows if r["must"] is not None and r["verdict"] not in ("must", "aim")]
    print(f"\n{len(failed)} of {sum(r['must'] is not None for r in rows)} rows with a must are below it or missing")
    return min(len(failed), 100)


if __name__ == "__main__":
    sys.exit(main())
