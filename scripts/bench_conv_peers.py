#!/usr/bin/env python3
"""Training steps of CNV and ResNet-20 (IR-Net 1W1A, LSQ, fp32) in PyTorch and here, in turns, in one call.

  BITGRAD_TORCH_PYTHON=venv/bin/python scripts/bench_conv_peers.py [--net cnv,resnet20] [--rounds 5] [--threads 1]
      [--bench build/release/bin/bench_step] [--config NET=FILE ...] [--grad config,int8] [--no-compile] [--json FILE]

BITGRAD_TORCH_PYTHON names a Python with torch (2.15 was measured); without it the Python that runs this is used. First
every variant of PyTorch runs once: memory formats NCHW and NHWC, malloc as it is, told to keep memory, and jemalloc
where it is installed, eager and torch.compile. The fastest is the rival, never the slowest. Then rival and
`bench_step --net` run in turns, a process each, so that a change of the machine's pace meets both. Printed: medians over
the rounds of ms of a step (processor time of the process with one thread, else wall time), their ratio, and the smallest
and largest ratio of a round. Images are random; forward, loss, backward, optimizer (and the clamp of CNV's weights).

Nets: cnv (FINN, 1W1A, Adam, squared hinge, batch 100), resnet20 (IR-Net 1W1A), resnet20_lsq (fake quantization, --bits),
resnet20_fp32: SGD, batch 128. Ours of the last two needs --config, such as
--config resnet20_lsq=configs/cifar10_resnet20_lsq_w4a4.yaml.
"""
import argparse
import json
import math
import statistics
import sys

import torch_peers

NETS = ("cnv", "resnet20", "resnet20_lsq", "resnet20_fp32")


def variants(device, compiler):
    mallocs = ["default"] if device == "cuda" else ["jemalloc"] if torch_peers.find_jemalloc() else ["keep"]
    if device == "cpu":
        yield dict(layout="nchw", malloc="default", compile=False)
    for malloc in mallocs:
        for layout in ("nchw", "nhwc"):
            for compiled in ([False, True] if compiler else [False]):
                yield dict(layout=layout, malloc=malloc, compile=compiled)
                if device == "cuda":
                    yield dict(layout=layout, malloc=malloc, compile=compiled, mode="bf16")


# ---- one variant, in a process of its own -----------------------------------------------------------------------------


def functions(torch):
    class SignClip(torch.autograd.Function):
        """{-1, +1}; the gradient passes where abs(x) <= 1"""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.abs() <= 1)
            return (x >= 0).to(x.dtype).mul_(2).sub_(1)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    class SignPass(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            return (w >= 0).to(w.dtype).mul_(2).sub_(1)

        @staticmethod
        def backward(ctx, g):
            return g

    class SignTanh(torch.autograd.Function):
        """IR-Net: slope k t (1 - tanh^2(t x)), k = max(1/t, 1)"""

        @staticmethod
        def forward(ctx, x, t):
            ctx.save_for_backward(x)
            ctx.t = t
            return (x >= 0).to(x.dtype).mul_(2).sub_(1)

        @staticmethod
        def backward(ctx, g):
            h = (ctx.saved_tensors[0] * ctx.t).tanh_()
            return h.mul_(h).neg_().add_(1).mul_(max(1.0 / ctx.t, 1.0) * ctx.t).mul_(g), None

    return SignClip.apply, SignPass.apply, SignTanh.apply


def make_cnv(torch):
    nn, functional = torch.nn, torch.nn.functional
    sign_clip, sign_pass, _ = functions(torch)

    class Cnv(nn.Module):
        def __init__(self):
            super().__init__()
            w, f = [64, 64, 128, 128, 256, 256], 512
            self.conv = nn.ModuleList(nn.Conv2d(i, o, 3, bias=False) for i, o in zip([3] + w, w))
            self.cbn = nn.ModuleList(nn.BatchNorm2d(o, eps=1e-4) for o in w)
            self.fc = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in ((w[-1], f), (f, f), (f, 10)))
            self.fbn = nn.ModuleList(nn.BatchNorm1d(f, eps=1e-4) for _ in range(2))
            self.last = nn.BatchNorm1d(1, eps=1e-4)
            for m in list(self.conv) + list(self.fc):
                nn.init.uniform_(m.weight, -1, 1)

        def forward(self, x):  # x in [-1, 1], taken as Q1.7
            x = (x * 128).round().clamp(-128, 127) / 128
            for i, (conv, bn) in enumerate(zip(self.conv, self.cbn)):
                x = sign_clip(bn(functional.conv2d(x, sign_pass(conv.weight))))
                if i in (1, 3):
                    x = functional.max_pool2d(x, 2)
            x = x.flatten(1)
            for fc, bn in zip(self.fc, self.fbn):
                x = sign_clip(bn(functional.linear(x, sign_pass(fc.weight))))
            x = functional.linear(x, sign_pass(self.fc[-1].weight))
            return self.last(x.reshape(-1, 1)).reshape(x.shape)

    return Cnv()


def make_convolutions(torch, net, layout, bits):
    """The inner convolution of ResNet-20, and the first one."""
    nn, functional = torch.nn, torch.nn.functional
    _, _, sign_tanh = functions(torch)
    t = 0.1

    class IrConv(nn.Conv2d):
        def forward(self, x):
            w = self.weight.flatten(1)
            w = w - w.mean(1, keepdim=True)
            w = w / w.std(1, keepdim=True)
            s = torch.exp2(w.abs().mean(1).log2().round()).detach()
            w = (sign_tanh(w, t) * s[:, None]).reshape(self.weight.shape).contiguous(memory_format=layout)
            return functional.conv2d(sign_tanh(x, t), w, None, self.stride, self.padding)

    class LsqQuant(nn.Module):
        def __init__(self, count, unsigned):
            super().__init__()
            self.lo, self.hi = (0, 2**count - 1) if unsigned else (-2**(count - 1), 2**(count - 1) - 1)
            self.step = nn.Parameter(torch.full((), 0.1))

        def forward(self, x, n):
            g = 1 / math.sqrt(n * self.hi)
            s = self.step * g + (self.step - self.step * g).detach()
            u = (x / s).clamp(self.lo, self.hi)
            return (u + (u.round() - u).detach()) * s

    class LsqConv(nn.Conv2d):
        def __init__(self, *args, count=bits, unsigned=True, **kw):
            super().__init__(*args, **kw)
            self.qw, self.qx = LsqQuant(count, False), LsqQuant(count, unsigned)

        def forward(self, x):
            return functional.conv2d(self.qx(x, x[0].numel()), self.qw(self.weight, self.weight.numel()), None,
                                     self.stride, self.padding)

    if net == "resnet20_lsq":
        return LsqConv, LsqConv(3, 16, 3, 1, 1, bias=False, count=8, unsigned=False)
    return (IrConv if net == "resnet20" else nn.Conv2d), nn.Conv2d(3, 16, 3, 1, 1, bias=False)


def make_resnet20(torch, net, layout, bits):
    nn, functional = torch.nn, torch.nn.functional
    inner, first = make_convolutions(torch, net, layout, bits)
    signs = net == "resnet20"

    def shortcut_a(x, planes):
        return x if x.shape[1] == planes else functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, planes // 4, planes // 4))

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.o = o
            self.c1, self.c2 = inner(i, o, 3, stride, 1, bias=False), inner(o, o, 3, 1, 1, bias=False)
            self.b1, self.b2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)

        def forward(self, x):
            if signs:  # a shortcut around each convolution
                x = functional.hardtanh(self.b1(self.c1(x)) + shortcut_a(x, self.o))
                return functional.hardtanh(self.b2(self.c2(x)) + x)
            y = self.b2(self.c2(functional.relu(self.b1(self.c1(x)))))
            return functional.relu(y + shortcut_a(x, self.o))

    class ResNet20(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.bn = first, nn.BatchNorm2d(16)
            planes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
            self.blocks = nn.Sequential(*(Block(i, o, s) for i, o, s in planes))
            self.last = nn.BatchNorm1d(64) if signs else nn.Identity()
            self.fc = nn.Linear(64, 10)
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)):
                    nn.init.kaiming_normal_(m.weight)

        def forward(self, x):
            act = functional.hardtanh if signs else functional.relu
            return self.fc(self.last(self.blocks(act(self.bn(self.stem(x)))).mean((2, 3))))

    return ResNet20()


def make_step(torch, cell):
    layout = torch.channels_last if cell["layout"] == "nhwc" else torch.contiguous_format
    cnv = cell["net"] == "cnv"
    net = make_cnv(torch) if cnv else make_resnet20(torch, cell["net"], layout, cell["bits"])
    net = net.to(memory_format=layout)
    batch = cell["batch"]
    x = (torch.rand(batch, 3, 32, 32) * 2 - 1).contiguous(memory_format=layout)
    labels = torch.arange(batch) % 10
    if cnv:
        latent = [m.weight.data for m in net.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02, fused=True)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    run = torch.compile(net) if cell["compile"] else net

    def squared_hinge(y):
        onehot = torch.full_like(y, -1.0).scatter_(1, labels[:, None], 1.0)
        return (1 - y * onehot).clamp_min(0).square().mean()

    def step():
        with torch.autocast(cell["device"], torch.bfloat16, enabled=cell.get("mode") == "bf16"):
            y = run(x)
        y = y.float()
        loss = squared_hinge(y) if cnv else torch.nn.functional.cross_entropy(y, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if cnv:
            torch._foreach_clamp_min_(latent, -1)
            torch._foreach_clamp_max_(latent, 1)

    return step


def run_cell(cell):
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    logging.disable(logging.WARNING)
    clock = torch_peers.prepare(torch, cell)
    step = make_step(torch, cell)
    for _ in range(2):
        step()
    times = []
    for _ in range(cell["steps"]):
        start = clock()
        step()
        times.append((clock() - start) * 1e3)
    return dict(ms=statistics.median(times), peak_rss=torch_peers.peak_bytes(torch, cell), torch=torch.__version__)


# ---- both sides ---------------------------------------------------------------------------------------------------------


def torch_ms(cell):
    return torch_peers.torch_row(__file__, cell)


def our_row(a, net, grad, memory=False):
    arguments = ["--net", a.configs.get(net, net), "--threads", str(a.threads), "--repeat", str(a.steps), "--no-parts"]
    arguments += torch_peers.device_arguments(a)
    arguments += [] if memory else ["--no-memory"]
    return torch_peers.bench_step_row(a.bench, arguments + ([] if grad == "config" else ["--grad", grad]))


def best_variant(a, net):
    base = dict(net=net, batch=100 if net == "cnv" else 128, bits=a.bits, device=a.device, threads=a.threads, steps=a.steps)
    compiler = not a.no_compile and torch_peers.find_compiler()
    cells = ((dict(base, **variant), variant) for variant in variants(a.device, compiler))
    return torch_peers.best_of(__file__, cells, (net,))


def describe(cell):
    return f"{cell['layout']} {cell['malloc']} {cell.get('mode', 'fp32')} {'compiled' if cell['compile'] else 'eager'}"


def compare(a, net):
    best, rows = best_variant(a, net)
    grads = a.grad.split(",")
    ours = {grad: [] for grad in grads}
    rival = []
    for _ in range(a.rounds):
        for grad in grads:
            ours[grad].append(our_row(a, net, grad)["ms"])
        rival.append(torch_ms(best["cell"]).get("ms", math.nan))
    out = dict(net=net, threads=a.threads, variant=describe(best["cell"]), torch=best.get("torch"),
               torch_ms=statistics.median(rival), torch_peak_rss=best["peak_rss"],
               variants=[dict(r["cell"], ms=r.get("ms"), error=r.get("error")) for r in rows], ours=[])
    print(f"\n{net}: PyTorch {out['torch']} ({out['variant']}) {out['torch_ms']:.1f} ms, peak {best['peak_rss']} bytes")
    for grad in grads:
        ratios = [r / o for r, o in zip(rival, ours[grad])]
        memory = our_row(a, net, grad, memory=a.device == "cpu")
        row = dict(grad=grad, ms=statistics.median(ours[grad]), x_torch=out["torch_ms"] / statistics.median(ours[grad]),
                   least=min(ratios), most=max(ratios), saved_bytes=memory.get("saved_bytes", 0),
                   rss_growth=memory.get("rss_growth", 0))
        out["ours"].append(row)
        print(f"  gradients {grad}: {row['ms']:.1f} ms, {row['x_torch']:.2f} x PyTorch (rounds {row['least']:.2f} to "
              f"{row['most']:.2f}), saved for backward {row['saved_bytes']} bytes", flush=True)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    torch_peers.add_arguments(p, rounds=5, steps=7)
    p.add_argument("--net", default="cnv,resnet20", help="of " + ", ".join(NETS))
    p.add_argument("--config", action="append", default=[], metavar="NET=FILE", help="ours of a net is this configuration")
    p.add_argument("--grad", default="config", help="ours: config (as it says), fp32, bf16, int8; a list")
    p.add_argument("--bits", type=int, default=4, help="of resnet20_lsq in PyTorch")
    a = p.parse_args()
    if a.cell:
        print(json.dumps(run_cell(json.loads(a.cell))))
        return 0
    a.configs = dict(text.split("=", 1) for text in a.config)
    torch_peers.report_nets(a, p, NETS, compare)
    return 0


if __name__ == "__main__":
    sys.exit(main())
