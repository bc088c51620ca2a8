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
NETS = [("tfc", "MNIST TFC"), ("sfc", "MNIST SFC"), ("lfc", "MNIST LFC"), ("mlp4096", "MNIST 3x4096 BNN MLP"), ("cnv", "CIFAR-10 CNV"),
        ("resnet20", "CIFAR-10 ResNet-20 of IR-Net")]


def report(folder, name):
    try:
        with open(os.path.join(folder, name)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def lines(folder, name):
    """The objects of a file of lines; a line that is torn is left out."""
    try:
        with open(os.path.join(folder, name), errors="replace") as file:
            for line in file:
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict):
                    yield found
    except OSError:
        pass


def microseconds(x):
    return f"{x:.1f} us" if x < 10000 else f"{x / 1000:.2f} ms"


def row(what, must=None, aim=None, ours="", rival="", ratio=None, missing=""):
    """`ratio` is ours against the bar: higher is better."""
    if ratio is None:
        verdict = f"missing: {missing}"
    else:
        verdict = "" if must is None else "aim" if ratio >= aim else "must" if ratio >= must else "below"
    return dict(what=what, ours=ours, rival=rival, ratio=ratio, must=must, aim=aim, verdict=verdict)


class Table:
    def __init__(self, folder):
        self.products = [r for name in ("products", "long", "gx", "gw") for r in report(folder, f"bench_{name}.json").get("rows", [])]
        self.kernels = report(folder, "bench_kernels.json")
        self.steps = report(folder, "bench_steps.json").get("rows", [])
        self.peers = list(lines(folder, "peers.jsonl"))
        self.runs = {line["train"]: line for line in lines(folder, "train.jsonl") if "train" in line}  # the last counts
        self.device = report(folder, "bench_products.json").get("device", "unknown")

    # ---- products
    def of_shape(self, rows, shape, product):
        return [r for r in rows if [r.get("m"), r.get("n"), r.get("k")] == shape and r.get("product") == product and "us" in r]

    def bf16(self, shape, product=FORWARD):
        """(us, name) of the fastest bf16 product, of cuBLASLt or of PyTorch; None where neither was measured."""
        found = [(r["us"], r["kernel"].split(": ")[-1]) for r in self.of_shape(self.products, shape, product)
                 if r["kernel"].startswith("bf16 x bf16") and "cublaslt" in r["kernel"]]
        found += [(r["us"], r["kernel"]) for r in self.of_shape(self.peers, shape, product) if r["a"] == r["b"] == "bf16"]
        return min(found, default=None)

    def ours(self, shape, a, b, product=FORWARD):
        return min(((r["us"], r["kernel"]) for r in self.of_shape(self.products, shape, product)
                    if (r["a"], r["b"]) == (a, b) and not r["kernel"].startswith("bf16 x bf16") and "cublaslt" not in r["kernel"]),
                   default=None)

    @staticmethod
    def compared(what, ours, rival, must, aim, no_rival="no cuBLASLt, no torch"):
        if ours is None or rival is None:
            return row(what, must, aim, missing="no such product" if ours is None else no_rival)
        return row(what, must, aim, f"{microseconds(ours[0])} {ours[1]}", f"{microseconds(rival[0])} {rival[1]}", rival[0] / ours[0])

    def product(self, what, shape, a, b, must=None, aim=None, product=FORWARD):
        what = f"{what}, {'x'.join(str(n) for n in shape)}" + ("" if product == FORWARD else f", {product}")
        return self.compared(what, self.ours(shape, a, b, product), self.bf16(shape, product), must, aim)

    def others(self, shape):
        """Rivals in int8 and fp8, without a bar."""
        found = [r for r in self.of_shape(self.products, shape, FORWARD)
                 if "cublaslt" in r["kernel"] and not r["kernel"].startswith("bf16 x bf16")]
        found += [r for r in self.of_shape(self.peers, shape, FORWARD) if r["a"] != "bf16"]
        rival = self.bf16(shape)
        return [self.compared(f"beside: {r['a']} x {r['b']} by {r['kernel']}", (r["us"], ""), rival, None, None) for r in found if rival]

    # ---- other kernels, steps, training
    def family(self, name, must=None, aim=None):
        found = sorted((r for r in self.kernels.get("rows", []) if r["family"] == name), key=lambda r: r["copy_share"])
        what = f"{name} kernels, share of copy bandwidth"
        if not found:
            return row(what, must, aim, missing="no bench_kernels")
        low, share = found[0], found[0]["copy_share"]
        return row(f"{what}: lowest of {len(found)} (middle {100 * found[len(found) // 2]['copy_share']:.0f} %)", must, aim,
                   f"{low['gb_s']:.0f} GB/s {low['what']} {low['dtype']} {low['layout']}".rstrip(), f"{low['gb_s'] / share:.0f} GB/s copy", share)

    def step_rival(self, kind, shape):
        """(ms, name) of PyTorch's fastest step; of the products alone also cuBLASLt's three."""
        text = ",".join(str(n) for n in shape)
        found = [(r["ms"], r["variant"]) for r in self.peers if r.get("step") == text and r["kind"] == kind and "ms" in r]
        batch, n_in, n_out = shape
        parts = [self.bf16([batch, n_out, n_in]), self.bf16([batch, n_in, n_out], "gx"), self.bf16([n_out, n_in, batch], "gw")]
        if not found and kind == "products" and None not in parts:
            found = [(sum(us for us, _ in parts) / 1000, "three products by cuBLASLt")]
        return min(found, default=None)

    def step(self, layer, name, shape, must, aim):
        text = ",".join(str(n) for n in shape)
        found = next((r for r in self.steps if r["layer"] == layer and r["shape"] == text), None)
        for kind, title in (("products", "forward and backward"), ("adam", "whole step with Adam")):
            what, rival = f"step {text}, {name}: {title}", self.step_rival(kind, shape)
            parts = (found or {}).get("parts", {})
            if found is None or (kind == "products" and "update" not in parts) or rival is None:
                yield row(what, must, aim, missing="no torch" if found and rival is None else "no bench_step")
                continue
            ours = found["ms"] - (parts["update"] + parts["requantize"] if kind == "products" else 0)
            yield row(what, must, aim, f"{ours:.3f} ms", f"{rival[0]:.3f} ms {rival[1]}", rival[0] / ours)

    def training(self, net, title):
        run = self.runs.get(net)
        if run is None or run.get("best") is None:
            return dict(row(f"{title}: best accuracy", missing="not trained"), must="published - 0.3")
        best, aim, must = run["best"], run["published"], round(run["published"] - 0.3, 2)
        return dict(row(f"{title}: best accuracy, {run['epochs']} of {run['published_epochs']} epochs", must, aim, f"{best:.2f} %",
                        f"{aim:.2f} % published", best), ratio=None)

    def rows(self, shape, long, step):
        yield self.product("s8 -> bf16 with scales", shape, "int8", "int8", 1.5, 1.9)
        yield self.product("b1 -> bf16", shape, "bint1", "bint1", 7, 12)
        yield self.product("b1 -> bf16", long, "bint1", "bint1", 9, 15)
        for bits, b in ((1, "bint1"), (2, "int2"), (4, "int4")):
            yield self.compared(f"W{bits} x A8 beside own s8", self.ours(shape, "int8", b), self.ours(shape, "int8", "int8"), 0.85, 0.97,
                                "no such product")
        yield self.product("bf16 x W4", shape, "bf16", "int4", 0.3, 0.5)
        yield self.product("fp32 x W4", shape, "fp32", "int4", 0.12, 0.2)
        for family in ("pack", "quantize", "optimizer"):
            yield self.family(family, 0.7, 0.9)
        yield from self.step("w8a8", "all s8", step, 1.3, 1.85)
        yield from self.step("binary", "W1A1 forward, s8 backward", step, 1.6, 2.4)
        for net, title in NETS:
            yield self.training(net, title)
        for family in ("elementwise", "reduce"):
            yield self.family(family)
        batch, n_in, n_out = step
        yield self.product("s8 -> bf16 with scales", [batch, n_in, n_out], "int8", "int8", product="gx")
        yield self.product("s8 -> bf16 with scales", [n_out, n_in, batch], "int8", "int8", product="gw")
        yield from self.others(shape)

    def ceilings(self, shape):
        copy, bf16 = self.kernels.get("copy_gb_s"), self.bf16(shape)
        yield f"device: {self.device}"
        yield f"copy: {copy:.0f} GB/s read and written" if copy else "copy: missing"
        yield (f"bf16: {2e-6 * shape[0] * shape[1] * shape[2] / bf16[0]:.0f} TFLOP/s, {bf16[1]}" if bf16
               else "bf16: missing: no cuBLASLt, no torch")


def markdown(rows):
    titles = ["what", "ours", "rival", "ratio", "must", "aim", "verdict"]
    text = lambda x: "" if x is None else f"{x:.2f}" if isinstance(x, float) else str(x)
    cells = [titles] + [[text(r[t]) for t in titles] for r in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
    cells.insert(1, ["-" * w for w in widths])
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in cells)


def parse_shape(text):
    parts = text.split(",")
    if len(parts) != 3 or not all(p.isdigit() for p in parts):
        raise argparse.ArgumentTypeError(f"got '{text}', expected three whole numbers such as 8192,4096,4096")
    return [int(p) for p in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for name, shape in (("--shape", [8192, 4096, 4096]), ("--long", [8192, 4096, 16384]), ("--step", [8192, 4096, 4096])):
        parser.add_argument(name, type=parse_shape, default=shape)
    args = parser.parse_args()
    table = Table(args.folder)
    rows = list(table.rows(args.shape, args.long, args.step))
    print("\n".join(table.ceilings(args.shape)), markdown(rows), sep="\n\n")
    with open(os.path.join(args.folder, "table.jsonl"), "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)
    failed = sum(r["must"] is not None and r["verdict"] not in ("must", "aim") for r in rows)
    print(f"\n{failed} of {sum(r['must'] is not None for r in rows)} rows with a must are below it or missing")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
