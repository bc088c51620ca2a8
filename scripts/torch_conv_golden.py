#!/usr/bin/env python3
"""Writes tests/golden/torch_conv.json: convolutions, pools, a block of IR-Net and short trainings by PyTorch in float64.

    pip install numpy torch
    OMP_NUM_THREADS=1 python scripts/torch_conv_golden.py tests/golden/torch_conv.json

tests/ops/conv2d_torch_test.cpp and tests/nn/conv_torch_test.cpp make the same inputs and compare. All arrays here are in
the library's order: images [n,h,w,c], weights [o, kh*kw*c/groups]. Inputs are drawn by a linear congruential generator
from the seed that stands beside them, element by element:
  eighths(seed)  ((state >> 33) mod 17 - 8) / 8: sums of products are exact in float32, so results are compared with ==
  units(seed)    ((state >> 40) - 2^23) / 2^23, in [-1, 1)
  levels(seed)   ((state >> 33) mod 255 - 127) / 128: int8 codes
"conv", "pool": results of each case in full. "block": two units of IR-Net's binary ResNet (github.com/htqin/IR-Net,
CIFAR-10: standardized weights, BinaryQuantize in the backward, a shortcut around each convolution), with every gradient.
Ours differs from that code where a number is exactly 0 (sign(0) = +1, there 0) and where log2 of the mean is a tie; no
number here is. "training": losses of 20 steps, and the sum of squares of each parameter behind them. No number that a
sign, a clip, a ReLU or a pool decides about lies within MARGIN of its border, so float32 decides alike (the seed is
chosen so).
"""
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
MARGIN = 2e-5


def draws(seed, count):
    state, out = seed, []
    for _ in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        out.append(state)
    return out


def made(rule, seed, shape):
    numbers = [rule(s) for s in draws(seed, math.prod(shape))]
    return torch.tensor(numbers).reshape(shape)


def eighths(seed, *shape):
    return made(lambda s: ((s >> 33) % 17 - 8) / 8, seed, shape)


def units(seed, *shape):
    return made(lambda s: ((s >> 40) - 2**23) * 2.0**-23, seed, shape)


def levels(seed, *shape):
    return made(lambda s: ((s >> 33) % 255 - 127) / 128, seed, shape)


def conv(x, w, o, kernel, stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), pad_value=0, groups=1, bias=None):
    """conv2d of x [n,h,w,c] and w [o,k] -> [n,oh,ow,o]; padding is top, left, bottom, right."""
    top, left, bottom, right = padding
    image = F.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom), value=float(pad_value))
    weights = w.reshape(o, kernel[0], kernel[1], -1).permute(0, 3, 1, 2)
    return F.conv2d(image, weights, bias, stride, 0, dilation, groups).permute(0, 2, 3, 1)


def numbers(t):
    """Short decimals of dyadic numbers, which are exact."""
    return [int(v) if v == int(v) else v for v in t.detach().contiguous().reshape(-1).tolist()]


CONVS = [  # n, h, w, c, o, and what follows
    dict(shape=(2, 5, 6, 3, 4), kernel=(3, 3), padding=(1, 1, 1, 1)),
    dict(shape=(1, 7, 5, 2, 3), kernel=(3, 2), stride=(2, 1), padding=(0, 2, 1, 0)),
    dict(shape=(1, 8, 9, 2, 3), kernel=(2, 3), stride=(1, 3), dilation=(3, 2), padding=(2, 1, 0, 3)),
    dict(shape=(2, 4, 4, 6, 4), kernel=(3, 3), padding=(1, 1, 1, 1), groups=2),
    dict(shape=(2, 5, 4, 5, 5), kernel=(3, 3), stride=(2, 2), padding=(1, 0, 1, 1), groups=5),
    dict(shape=(1, 4, 5, 3, 6), kernel=(2, 2), groups=3),
    dict(shape=(1, 2, 1, 4, 3), kernel=(5, 3), padding=(2, 1, 2, 1)),
    dict(shape=(2, 3, 3, 7, 5), kernel=(1, 1), stride=(2, 2)),
    dict(shape=(1, 4, 4, 3, 2), kernel=(3, 3), padding=(1, 1, 1, 1), pad_value=1, sign=True),
    dict(shape=(1, 4, 4, 3, 2), kernel=(3, 3), padding=(1, 2, 0, 1), pad_value=-1, sign=True),
    dict(shape=(1, 4, 4, 3, 2), kernel=(3, 3), padding=(1, 1, 2, 1), sign=True),
]


def conv_cases():
    cases = []
    for i, c in enumerate(CONVS):
        n, h, w, ch, o = c["shape"]
        options = {key: c[key] for key in ("stride", "dilation", "padding", "pad_value", "groups") if key in c}
        kernel, groups = c["kernel"], c.get("groups", 1)
        x = eighths(4 * i + 1, n, h, w, ch)
        if c.get("sign"):
            x = torch.where(x >= 0, 1.0, -1.0)
        weights, bias = eighths(4 * i + 2, o, kernel[0] * kernel[1] * ch // groups), eighths(4 * i + 3, o)
        for t in (x, weights, bias):
            t.requires_grad_()
        y = conv(x, weights, o, kernel, bias=bias, **options)
        y.backward(eighths(4 * i + 4, *y.shape))
        cases.append({"shape": list(c["shape"]), "kernel": list(kernel), "stride": list(c.get("stride", (1, 1))),
                      "dilation": list(c.get("dilation", (1, 1))), "padding": list(c.get("padding", (0, 0, 0, 0))),
                      "pad_value": c.get("pad_value", 0), "groups": groups, "sign": c.get("sign", False),
                      "seed": 4 * i + 1, "out": list(y.shape[1:3]), "y": numbers(y), "gx": numbers(x.grad),
                      "gw": numbers(weights.grad), "gbias": numbers(bias.grad)})
    return cases


POOLS = [((2, 6, 6, 3), 2, 2, 0), ((1, 7, 5, 4), 3, 2, 1), ((1, 5, 5, 2), 3, 1, 1), ((1, 4, 7, 3), 2, 3, 0)]


def pool_cases():
    """max_pool2d with ties (of signs nearly all are): the gradient goes to the first, row by row."""
    cases = []
    for i, (shape, size, stride, padding) in enumerate(POOLS):
        for sign in (False, True):
            x = eighths(101 + 2 * i, *shape)
            if sign:
                x = torch.where(x >= 0, 1.0, -1.0)
            x.requires_grad_()
            y = F.max_pool2d(x.permute(0, 3, 1, 2), size, stride, padding).permute(0, 2, 3, 1)
            y.backward(eighths(102 + 2 * i, *y.shape))
            cases.append({"shape": list(shape), "size": size, "stride": stride, "padding": padding, "sign": sign,
                          "seed": 101 + 2 * i, "out": list(y.shape[1:3]), "y": numbers(y), "gx": numbers(x.grad)})
    return cases


class Border:
    """The smallest distance to a border of what signs and clips decide about."""

    least = math.inf

    @classmethod
    def of(cls, x, *borders):
        for b in borders:
            cls.least = min(cls.least, (x.detach().abs() - b).abs().min().item())


class SignTanh(torch.autograd.Function):  # BinaryQuantize of IR-Net, k = max(1/t, 1)
    @staticmethod
    def forward(ctx, x, t):
        ctx.save_for_backward(x)
        ctx.t = t
        Border.of(x, 0)
        return torch.sign(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return max(1 / ctx.t, 1) * ctx.t * (1 - torch.tanh(x * ctx.t) ** 2) * g, None


class SignClip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.abs() <= 1)
        Border.of(x, 0, 1)
        return torch.sign(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class SignPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        Border.of(w, 0)
        return torch.sign(w)

    @staticmethod
    def backward(ctx, g):
        return g


def ir_conv(x, w, o, stride, t):
    bw = w - w.mean(-1, keepdim=True)
    bw = bw / bw.std(-1, keepdim=True)
    power = torch.log2(bw.abs().mean(-1, keepdim=True)).detach()
    assert ((power - power.floor()) - 0.5).abs().min() > 1e-3
    bw = SignTanh.apply(bw, t) * 2.0 ** power.round()
    return conv(SignTanh.apply(x, t), bw, o, (3, 3), (stride, stride), padding=(1, 1, 1, 1))


def norm(x, gamma, beta, eps=1e-5):
    """Batch norm over all but the last axis."""
    return F.batch_norm(x.reshape(-1, x.shape[-1]), None, None, gamma, beta, True, 0.1, eps).reshape(x.shape)


def block_case(t, seed):
    """hardtanh(norm(conv(sign x)) + shortcut), stride 2 with a shortcut that is given, then stride 1 around itself."""
    Border.least = math.inf
    leaves = {"x": units(seed, 3, 6, 7, 6) * 2, "shortcut": units(seed + 1, 3, 3, 4, 10), "w1": units(seed + 2, 10, 54),
              "w2": units(seed + 3, 10, 90), "gamma1": units(seed + 4, 10), "beta1": units(seed + 5, 10),
              "gamma2": units(seed + 6, 10), "beta2": units(seed + 7, 10)}
    for leaf in leaves.values():
        leaf.requires_grad_()
    v = leaves
    first = norm(ir_conv(v["x"], v["w1"], 10, 2, t), v["gamma1"], v["beta1"]) + v["shortcut"]
    h = F.hardtanh(first)
    second = norm(ir_conv(h, v["w2"], 10, 1, t), v["gamma2"], v["beta2"]) + h
    y = F.hardtanh(second)
    for s in (first, second):
        Border.of(s, 1)
    y.backward(units(seed + 8, *y.shape))
    if Border.least < 5 * MARGIN:
        return None
    return {"t": t, "seed": seed, "y": [float("%.9g" % a) for a in y.detach().reshape(-1).tolist()],
            "gradients": {name: [float("%.9g" % a) for a in leaf.grad.reshape(-1).tolist()]
                          for name, leaf in leaves.items()}}


STEPS, BATCHES, BATCH, SIDE = 20, 3, 6, 8


def train(binary, optimizer, seed):
    """conv 3x3 (6), norm, sign or ReLU, conv 3x3 (8, in fp32 stride 1 with padding 1), norm, sign or ReLU, max pool 2,
    flatten, linear. Binary: no padding, tensor norm behind, squared hinge, weights clamped to [-1, 1]."""
    Border.least = math.inf
    pad = 0 if binary else 1
    side = (SIDE - 4) // 2 if binary else SIDE // 2
    p = {"w1": units(seed, 6, 27), "w2": units(seed + 1, 8, 54), "w3": units(seed + 2, 10, side * side * 8)}
    if not binary:
        p = {name: w / 4 for name, w in p.items()}
    for i, width in ((1, 6), (2, 8)) + (((3, 1),) if binary else ()):
        p["gamma%d" % i], p["beta%d" % i] = torch.ones(width), torch.zeros(width)
    for w in p.values():
        w.requires_grad_()
    images = levels(seed + 3, BATCHES, BATCH, SIDE, SIDE, 3)
    labels = torch.tensor([(s >> 33) % 10 for s in draws(seed + 4, BATCHES * BATCH)]).reshape(BATCHES, BATCH)
    if optimizer == "sgd":
        rule = torch.optim.SGD(p.values(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    else:
        rule = torch.optim.Adam(p.values(), lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    weight = SignPass.apply if binary else lambda w: w
    eps = 1e-4 if binary else 1e-5
    losses = []
    for step in range(STEPS):
        x = images[step % BATCHES]
        for i, (o, inner) in enumerate(((6, 3), (8, 6))):
            x = conv(x, weight(p["w%d" % (i + 1)]), o, (3, 3), padding=(pad,) * 4)
            x = norm(x, p["gamma%d" % (i + 1)], p["beta%d" % (i + 1)], eps)
            x = SignClip.apply(x) if binary else F.relu(x)
        x = F.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
        x = x.reshape(BATCH, -1) @ weight(p["w3"]).T
        t = labels[step % BATCHES]
        if binary:
            x = norm(x.reshape(-1, 1), p["gamma3"], p["beta3"], eps).reshape(BATCH, 10)
            target = torch.full((BATCH, 10), -1.0).scatter_(1, t[:, None], 1.0)
            loss = torch.clamp(1 - target * x, min=0).square().mean()
            Border.of(1 - target * x, 0)
        else:
            loss = F.cross_entropy(x, t)
        rule.zero_grad()
        loss.backward()
        rule.step()
        if binary:
            with torch.no_grad():
                for name in ("w1", "w2", "w3"):
                    p[name].clamp_(-1, 1)
        losses.append(loss.item())
    if binary and Border.least < MARGIN:
        return None
    return {"binary": binary, "optimizer": optimizer, "seed": seed, "losses": losses,
            "squares": {name: w.detach().square().sum().item() for name, w in p.items()}}


def first_of(make, *args):
    for seed in range(1001, 9001, 10):
        result = make(*args, seed)
        if result is not None:
            print(make.__name__, *args, "seed", seed, "margin %.3g" % Border.least)
            return result
    raise SystemExit("no seed keeps the margin")


def main():
    parts = {"conv": conv_cases(), "pool": pool_cases(), "block": [first_of(block_case, t) for t in (0.1, 3.0)],
             "training": [first_of(train, binary, rule) for binary in (False, True) for rule in ("sgd", "adam")]}
    with open(sys.argv[1], "w") as file:
        file.write('{"torch": "%s"' % torch.__version__)
        for name, cases in parts.items():
            lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
            file.write(',\n"%s": [\n%s\n]' % (name, lines))
        file.write("}\n")


main()
