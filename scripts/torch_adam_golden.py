#!/usr/bin/env python3
"""Writes tests/golden/torch_adam.json: where torch.optim.Adam and AdamW lead in float64, over 1,000 steps.

    pip install numpy torch
    python scripts/torch_adam_golden.py tests/golden/torch_adam.json

tests/optim/adam_torch_test.cpp makes the same gradients and compares. All are exact in fp32: element i
of step t (from 1) is (draw - 2^23) * 2^-23 * 2^e with e = 7*i mod 41 - 20 + (t // 100) mod 5, draws of a linear
congruential generator taken step by step; the first numbers are (i - 7.5) / 8.
A case is {optimizer, lr, betas, eps, weight_decay, weights}; weights[s] are the numbers after STEPS[s] steps as
hexadecimal floats. With --figures it also prints the largest relative error of a step's update (as the test has it: the
norm over all elements) of torch's own fp32, for 4,096 weights that are 0 before each step.
"""
import json
import sys

import numpy as np
import torch

COUNT, STEPS = 16, [1, 2, 3, 10, 100, 1000]
CASES = [
    ("adam", 0.02, (0.9, 0.999), 0.0),
    ("adam", 1e-3, (0.9, 0.999), 0.01),
    ("adam", 1e-3, (0.5, 0.25), 0.0),
    ("adamw", 1e-3, (0.9, 0.999), 0.0),
    ("adamw", 1e-3, (0.9, 0.999), 0.01),
    ("adamw", 0.02, (0.8, 0.95), 0.1),
]
CLASSES = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def gradients(steps, count):
    state, out = 1, np.zeros((steps, count))
    for t in range(1, steps + 1):
        for i in range(count):
            state = (6364136223846793005 * state + 1442695040888963407) % 2**64
            exponent = 7 * i % 41 - 20 + t // 100 % 5
            out[t - 1, i] = ((state >> 40) - 2**23) * 2.0 ** (exponent - 23)
    return out


def run(case, g, dtype):
    name, lr, betas, decay = case
    w = torch.nn.Parameter(torch.tensor([(i - 7.5) / 8 for i in range(g.shape[1])], dtype=dtype))
    optimizer = CLASSES[name]([w], lr=lr, betas=betas, eps=1e-8, weight_decay=decay, foreach=False)
    weights = []
    for row in g:
        w.grad = torch.tensor(row, dtype=dtype)
        optimizer.step()
        weights.append(w.detach().double().numpy().copy())
    return np.array(weights)


def updates(case, g, dtype):
    name, lr, betas, _ = case
    w = torch.nn.Parameter(torch.zeros(g.shape[1], dtype=dtype))
    optimizer = CLASSES[name]([w], lr=lr, betas=betas, eps=1e-8, weight_decay=0, foreach=False)
    out = []
    for row in g:
        w.data.zero_()
        w.grad = torch.tensor(row, dtype=dtype)
        optimizer.step()
        out.append(w.detach().double().numpy().copy())
    return np.array(out)


def figures():
    g = gradients(max(STEPS), 4096)
    for case in CASES:
        exact, narrow = updates(case, g, torch.float64), updates(case, g, torch.float32)
        error = np.linalg.norm(narrow - exact, axis=1) / np.linalg.norm(exact, axis=1)
        print(*case[:3], "largest error of a step %.3g, of the last %.3g" % (error.max(), error[-1]))


def main():
    g = gradients(max(STEPS), COUNT)
    cases = []
    for case in CASES:
        weights = run(case, g, torch.float64)
        name, lr, betas, decay = case
        cases.append({"optimizer": name, "lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": decay,
                      "weights": [[float(x).hex() for x in weights[s - 1]] for s in STEPS]})
    lines = ",\n".join(json.dumps(case).replace("[[", "[\n[").replace("], [", "],\n[") for case in cases)
    with open(sys.argv[1], "w") as file:
        file.write('{"torch": "%s", "steps": %s, "cases": [\n%s\n]}\n' % (torch.__version__, STEPS, lines))

    if "--figures" in sys.argv:
        figures()


main()
