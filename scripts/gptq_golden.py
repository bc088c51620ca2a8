"""Writes tests/golden/gptq.json: codes of GPTQ (Frantar et al. 2022) in NumPy, float64, one column at a time.

    python scripts/gptq_golden.py > tests/golden/gptq.json

Weights and inputs are whole numbers of a linear congruential sequence, so that both sides have the same sums.
"""
import json

import numpy as np


class Sequence:
    def __init__(self, seed):
        self.state = seed

    def whole(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return (self.state >> 24) % 17 - 8

    def matrix(self, rows, cols):
        return np.array([[self.whole() for _ in range(cols)] for _ in range(rows)], np.float64)


def inputs(n, k):
    a = Sequence(7).matrix(n, k)
    return a + np.roll(a, -1, 1) + 2 * np.roll(a, -3, 1)  # neighbors depend on each other


def row_scale(w, qmin, qmax, kind):
    w = w.astype(np.float32)
    if kind == "absmax":
        return np.float64(np.abs(w).max(-1) / np.float32(qmax))
    return np.float64(np.maximum(-w.min(-1).clip(max=0), w.max(-1).clip(min=0)) / np.float32((qmax - qmin) / 2))


def gptq(w, h, qmin, qmax, kind, group, damp):
    w, k = w.copy(), w.shape[1]
    mean = np.diag(h).mean()
    w[:, np.diag(h) == 0] = 0
    order = np.arange(k) if group else np.argsort(-np.diag(h), kind="stable")
    h, w = h[np.ix_(order, order)].copy(), w[:, order]
    h[np.diag_indices(k)] = np.where(np.diag(h) == 0, mean, np.diag(h)) + damp * mean
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    codes, scales = np.zeros_like(w), []
    s = None if group else row_scale(W0, qmin, qmax, kind)
    for j in range(k):
        if group and j % group == 0:
            s = row_scale(w[:, j : j + group], qmin, qmax, kind)
        if j % (group or k) == 0:
            scales.append(s.tolist())
        codes[:, j] = np.clip(np.rint(w[:, j] / s), qmin, qmax)
        e = (w[:, j] - codes[:, j] * s) / u[j, j]
        w[:, j:] -= e[:, None] * u[j, j:][None]
    out = np.zeros_like(codes)
    out[:, order] = codes
    return out.astype(int), scales


cases = []
for o, k, n, dtype, kind, group, damp, dead in (
    (4, 1, 8, "int4", "absmax", 0, 0.01, -1),
    (6, 127, 256, "int4", "absmax", 0, 0.01, -1),
    (6, 128, 256, "int4", "absmax", 0, 0.1, 5),
    (6, 129, 256, "int2", "symmetric", 0, 0.01, -1),
    (5, 96, 128, "int2", "symmetric", 32, 0.01, -1),
    (5, 200, 256, "int4", "absmax", 32, 0.01, 40),
    (5, 300, 512, "int4", "symmetric", 150, 0.001, -1),
):
    W0 = Sequence(3).matrix(o, k) + 0.125 * Sequence(5).matrix(o, k)
    x = inputs(n, k)
    if dead >= 0:
        x[:, dead] = 0
    bits = int(dtype[3:])
    qmax = 2 ** (bits - 1) - 1
    qmin = -qmax if kind == "absmax" else -qmax - 1
    codes, scales = gptq(W0, x.T @ x / n, qmin, qmax, kind, group, damp)
    cases.append({"o": o, "k": k, "n": n, "dtype": dtype, "scheme": kind, "group": group, "damp": damp, "dead": dead,
                  "codes": [" ".join(map(str, row)) for row in codes.tolist()], "scales": scales})
print(json.dumps({"cases": cases}, indent=1))
