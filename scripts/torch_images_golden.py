#!/usr/bin/env python3
"""Writes tests/golden/torch_images.json: pools, prelu and batch norm of images by PyTorch in float64, with gradients.

    pip install numpy torch
    python scripts/torch_images_golden.py tests/golden/torch_images.json

tests/ops/torch_images_test.cpp makes the same inputs and compares. Numbers are NHWC, row-major, those of x from seed 1,
of gy from seed 2, of parameters from seeds 3 and 4: (draw - 2^23) * 2^-23, draws of a linear congruential generator;
with ties x is floor(2 * number), one of -2, -1, 0, 1. Results are hexadecimal floats.
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F


def numbers(shape, seed, ties=False):
    state, out = seed, np.zeros(int(np.prod(shape)))
    for i in range(out.size):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        out[i] = ((state >> 40) - 2**23) * 2.0**-23
    return (np.floor(2 * out) if ties else out).reshape(shape)


def nchw(array):
    return torch.tensor(np.ascontiguousarray(array.transpose(0, 3, 1, 2)), requires_grad=True)


def texts(tensor):
    array = tensor.detach().numpy()
    if array.ndim == 4:
        array = array.transpose(0, 2, 3, 1)
    return [float(v).hex() for v in array.ravel()]


def case(name, shape, f, ties=False, parameters=0, **keys):
    x = nchw(numbers(shape, 1, ties))
    p = [torch.tensor(numbers((shape[3],), 3 + i), requires_grad=True) for i in range(parameters)]
    y = f(x, *p)
    n, c, h, w = y.shape
    y.backward(nchw(numbers((n, h, w, c), 2)).detach())
    return {"name": name, "shape": shape, "ties": ties, **keys, "y_shape": [n, h, w, c], "y": texts(y),
            "gx": texts(x.grad), "gp": [texts(v.grad) for v in p]}


def pool(name, shape, size, stride, padding, ties=False):
    def run(x):
        if name == "max_pool":
            return F.max_pool2d(x, size, stride, padding)
        return F.avg_pool2d(x, size, stride, padding, count_include_pad=False)

    sides = [padding[0], padding[1], padding[0], padding[1]]
    return case(name, shape, run, ties, size=size, stride=stride, padding=sides)


def norm(training):
    running = [torch.tensor(numbers((5,), 5)), torch.tensor(np.abs(numbers((5,), 6)) + 0.5)]
    before = [texts(v) for v in running]
    out = case("batch_norm", [3, 4, 3, 5],
               lambda x, g, b: F.batch_norm(x, running[0], running[1], g, b, training, 0.25, 1e-3), parameters=2)
    return {**out, "training": training, "running": before, "running_after": [texts(v) for v in running]}


def main():
    cases = [
        pool("max_pool", [2, 7, 6, 5], [2, 2], [2, 2], [0, 0], True),
        pool("max_pool", [2, 7, 6, 5], [3, 2], [1, 1], [1, 1], True),
        pool("max_pool", [1, 8, 9, 3], [3, 4], [2, 3], [1, 2], True),
        pool("max_pool", [1, 8, 9, 3], [2, 2], [3, 3], [0, 0]),
        pool("avg_pool", [2, 7, 6, 5], [2, 2], [2, 2], [0, 0]),
        pool("avg_pool", [1, 8, 9, 3], [3, 4], [2, 1], [1, 2]),
        case("prelu", [2, 4, 3, 5], F.prelu, True, 1),
        norm(True),
        norm(False),
    ]
    with open(sys.argv[1], "w") as file:
        lines = ",\n".join(json.dumps(c) for c in cases)
        file.write('{"torch": "%s", "cases": [\n%s\n]}\n' % (torch.__version__, lines))


main()
