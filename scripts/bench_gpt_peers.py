#!/usr/bin/env python3
"""Training steps of small GPTs in PyTorch and here, in turns, in one call.

  BITGRAD_TORCH_PYTHON=venv/bin/python scripts/bench_gpt_peers.py [--net gpt,gpt384] [--quant float,ternary] [--rounds 3]
      [--threads 1] [--bench build/release/bin/bench_step] [--grad fp32,int8] [--no-compile] [--json FILE]

BITGRAD_TORCH_PYTHON names a Python with torch (2.15 was measured); without it the Python that runs this is used.

Nets: gpt (4 layers, 4 heads, 128 wide, context 64, batch 12), gpt384 (6, 6, 384, 256, batch 4) and gpt768 (12, 12, 768,
256, batch 4): layer norms, learned positions, GELU, no biases, a tied table of 65 (gpt768: 8192) ids, AdamW, norm of all gradients clipped to 1. Quant: what the linear
layers of the blocks multiply by; in PyTorch fake quantization, straight-through, inputs int8 absmax a token:
  float, int8 (absmax a row), int4 (symmetric, groups of 32), ternary (absmean a tensor), bint1 (mean |w| a row).
There is no norm before the last linear layer of attention and MLP on either side, unless --subnorm: RMS norms in PyTorch,
and here the nets of --config QUANT=FILE.

First every variant of PyTorch runs once, of the float model and of the quantized one: fp32 and bf16 autocast, malloc as it
is, told to keep memory, and jemalloc where it is installed, eager and torch.compile. The fastest of each is the rival,
never the slowest. Then rivals and `bench_step --net` run in turns, a process each, so that a change of the machine's pace
meets all. Printed: medians over the rounds of ms of a step (processor time of the process with one thread, else wall
time), ratios to both rivals with the smallest and largest of a round. Ids are random; forward, loss, backward, clip,
update.
"""
import argparse
import json
import math
import statistics
import sys

import torch_peers

SHAPES = {"gpt": dict(layers=4, heads=4, dim=128, vocabulary=65, context=64, batch=12),
          "gpt384": dict(layers=6, heads=6, dim=384, vocabulary=65, context=256, batch=4),
          "gpt768": dict(layers=12, heads=12, dim=768, vocabulary=8192, context=256, batch=4)}
QUANTS = ("float", "int8", "int4", "ternary", "bint1")


def variants(device, compiler):
    malloc = "default" if device == "cuda" else "jemalloc" if torch_peers.find_jemalloc() else "keep"
    if device == "cpu":
        yield dict(mode="fp32", malloc="default", compile=False)
    for mode in ("fp32", "bf16"):
        for compiled in ([False, True] if compiler else [False]):
            yield dict(mode=mode, malloc=malloc, compile=compiled)


# ---- one variant, in a process of its own -----------------------------------------------------------------------------


def fake_quantized(torch, quant):
    """Functions that round an input and a weight; gradients pass."""

    def rounded(x, scale, low, high):
        return x + ((x / scale).round().clamp(low, high) * scale - x).detach()

    def of_input(x):
        return rounded(x, x.abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127, -127, 127)

    def of_weight(w):
        if quant == "ternary":
            return rounded(w, w.abs().mean().clamp_min(1e-5), -1, 1)
        if quant == "int8":
            return rounded(w, w.abs().amax(1, keepdim=True).clamp_min(1e-9) / 127, -127, 127)
        if quant == "int4":
            groups = w.view(w.shape[0], -1, 32)
            return rounded(groups, groups.abs().amax(2, keepdim=True).clamp_min(1e-9) / 7.5, -8, 7).view_as(w)
        scale = w.abs().mean(1, keepdim=True)
        return w + (torch.where(w >= 0, scale, -scale) - w).detach()

    return of_input, of_weight


def make_model(torch, cell):
    nn, functional = torch.nn, torch.nn.functional
    dim, heads, context, vocabulary = cell["dim"], cell["heads"], cell["context"], cell["vocabulary"]
    of_input, of_weight = fake_quantized(torch, cell["quant"])

    class Linear(nn.Linear):
        def __init__(self, i, o, std, last=False):
            super().__init__(i, o, bias=False)
            nn.init.normal_(self.weight, std=std)
            self.gain = nn.Parameter(torch.ones(i)) if last and cell["subnorm"] else None

        def forward(self, x):
            if self.gain is not None:
                x = functional.rms_norm(x, (x.shape[-1],), self.gain, 1e-5)
            if cell["quant"] == "float":
                return functional.linear(x, self.weight)
            return functional.linear(of_input(x), of_weight(self.weight))

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(dim))

        def forward(self, x):
            return functional.layer_norm(x, (dim,), self.gain, None, 1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            last = 0.02 / math.sqrt(2 * cell["layers"])
            self.before, self.between = Norm(), Norm()
            self.qkv, self.out = Linear(dim, 3 * dim, 0.02), Linear(dim, dim, last, True)
            self.up, self.down = Linear(dim, 4 * dim, 0.02), Linear(4 * dim, dim, last, True)

        def forward(self, x):
            q, k, v = (t.view(x.shape[0], -1, heads, dim // heads).transpose(1, 2)
                       for t in self.qkv(self.before(x)).split(dim, 2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.positions = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
            nn.init.normal_(self.table.weight, std=0.02)
            nn.init.normal_(self.positions.weight, std=0.02)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(cell["layers"])), Norm()

        def forward(self, ids, targets):
            x = self.table(ids) + self.positions.weight[:ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.table.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Gpt()


def make_step(torch, cell):
    import contextlib

    model = make_model(torch, cell)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in parameters if p.dim() >= 2], weight_decay=0.1),
                                   dict(params=[p for p in parameters if p.dim() < 2], weight_decay=0.0)],
                                  lr=1e-3, betas=(0.9, 0.99), fused=True)
    run = torch.compile(model) if cell["compile"] else model
    ids = torch.randint(cell["vocabulary"], (cell["batch"], cell["context"]))
    targets = torch.randint(cell["vocabulary"], (cell["batch"], cell["context"]))

    def forward():
        with torch.autocast(cell["device"], torch.bfloat16) if cell["mode"] == "bf16" else contextlib.nullcontext():
            return run(ids, targets)

    def backward(loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return parameters, forward, backward, update


def run_cell(cell):
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    logging.disable(logging.WARNING)
    clock = torch_peers.prepare(torch, cell)
    before = torch_peers.status_bytes("VmRSS")
    parameters, forward, backward, update = make_step(torch, cell)
    times = []
    for _ in range(cell["warm"] + cell["steps"]):
        at = [clock()]
        loss = forward()
        at.append(clock())
        backward(loss)
        del loss
        at.append(clock())
        update()
        at.append(clock())
        times.append([(b - a) * 1e3 for a, b in zip(at, at[1:])] + [(at[-1] - at[0]) * 1e3])
    forward_ms, backward_ms, update_ms, ms = (statistics.median(column) for column in zip(*times[cell["warm"]:]))
    return dict(ms=ms, parts=dict(forward=forward_ms, backward=backward_ms, update=update_ms),
                parameters=sum(p.numel() for p in parameters), 
                rss_growth=torch_peers.peak_bytes(torch, cell) - (before if cell["device"] == "cpu" else 0), torch=torch.__version__,
                isa=torch.backends.cpu.get_cpu_capability() if cell["device"] == "cpu" else torch.cuda.get_device_name())


# ---- both sides ---------------------------------------------------------------------------------------------------------


def best_variant(a, net, quant):
    base = dict(SHAPES[net], net=net, quant=quant, subnorm=a.subnorm and quant != "float",
                device=a.device, threads=a.threads, steps=a.steps, warm=4)
    cells = ((dict(base, **variant), variant) for variant in variants(a.device, not a.no_compile and torch_peers.find_compiler()))
    return torch_peers.best_of(__file__, cells, (net, quant))


def describe(cell):
    return f"{cell['mode']}, malloc {cell['malloc']}, {'compiled' if cell['compile'] else 'eager'}"


def our_row(a, net, quant, grad, memory=False):
    name = a.configs.get(quant, net if quant == "float" else f"{net}-{quant}")
    arguments = ["--net", name, "--threads", str(a.threads), "--repeat", str(a.steps)] + torch_peers.device_arguments(a)
    arguments += [] if memory else ["--no-memory", "--no-parts"]
    for key in a.set:
        arguments += ["--set", key]
    gx, gw = grad.split("/") if "/" in grad else (grad, grad)
    return torch_peers.bench_step_row(a.bench, arguments + ["--set", f"quant.backward.gx={gx}", "--set",
                                                            f"quant.backward.gw={gw}"])


def compare(a, net):
    best = {quant: best_variant(a, net, quant) for quant in dict.fromkeys(["float"] + a.quants)}
    cells = [(quant, grad) for quant in a.quants for grad in (a.grads if quant != "float" else ["fp32"])
             if not (quant == "int4" and grad == "int8")]
    ours, rivals = {cell: [] for cell in cells}, {quant: [] for quant in best}
    for _ in range(a.rounds):
        for quant in best:
            rivals[quant].append(torch_peers.torch_row(__file__, best[quant][0]["cell"]).get("ms", math.nan))
        for cell in cells:
            ours[cell].append(our_row(a, net, *cell)["ms"])
    out = dict(net=net, threads=a.threads, torch=best["float"][0]["torch"], isa=best["float"][0]["isa"], rivals=[], ours=[])
    print(f"\n{net}: PyTorch {out['torch']} ({out['isa']})")
    for quant, (row, rows) in best.items():
        ms = statistics.median(rivals[quant])
        out["rivals"].append(dict(quant=quant, variant=describe(row["cell"]), ms=ms, rounds=rivals[quant], parts=row["parts"],
                                  rss_growth=row["rss_growth"],
                                  variants=[dict(describe=describe(r["cell"]), ms=r.get("ms"), error=r.get("error"))
                                            for r in rows]))
        print(f"  PyTorch {quant}: {ms:.1f} ms ({describe(row['cell'])}), resident growth {row['rss_growth'] / 2**20:.0f} MiB")
    for quant, grad in cells:
        ratios = {of: [r / o for r, o in zip(rivals[of], ours[quant, grad])] for of in dict.fromkeys(["float", quant])}
        whole = our_row(a, net, quant, grad, memory=a.device == "cpu")
        row = dict(quant=quant, grad=grad, ms=statistics.median(ours[quant, grad]), rounds=ours[quant, grad],
                   parts=whole.get("parts", {}), rss_growth=whole.get("rss_growth", 0),
                   ratios={of: dict(median=statistics.median(r), least=min(r), most=max(r)) for of, r in ratios.items()})
        out["ours"].append(row)
        text = ", ".join(f"{r['median']:.2f} x PyTorch {of} ({r['least']:.2f} to {r['most']:.2f})"
                         for of, r in row["ratios"].items())
        parts = ", ".join(f"{name} {ms:.1f}" for name, ms in row["parts"].items())
        print(f"  {quant}, gradients {grad}: {row['ms']:.1f} ms, {text}; {parts}; resident growth "
              f"{row['rss_growth'] / 2**20:.0f} MiB", flush=True)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    torch_peers.add_arguments(p, rounds=3, steps=15)
    p.add_argument("--net", default="gpt,gpt384", help="of " + ", ".join(SHAPES))
    p.add_argument("--quant", default=",".join(QUANTS), help="of " + ", ".join(QUANTS))
    p.add_argument("--grad", default="fp32,bf16,int8", help="ours: backward products of quantized layers; GX/GW for two; a "
                   "list. int8 is left out for int4, whose groups it does not serve (bf16/int8 is)")
    p.add_argument("--config", action="append", default=[], metavar="QUANT=FILE", help="ours is this configuration")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="ours: a key of the configuration")
    p.add_argument("--subnorm", action="store_true", help="RMS norms before the last linear layers, in PyTorch")
    a = p.parse_args()
    if a.cell:
        print(json.dumps(run_cell(json.loads(a.cell))))
        return 0
    a.configs = dict(text.split("=", 1) for text in a.config)
    a.quants, a.grads = a.quant.split(","), a.grad.split(",")
    if any(q not in QUANTS for q in a.quants):
        p.error("--quant: expected a list of " + ", ".join(QUANTS))
    torch_peers.report_nets(a, p, SHAPES, compare)
    return 0


if __name__ == "__main__":
    sys.exit(main())
