"""Writes tests/golden/ptq_methods.json: cross-layer equalization (Nagel et al. 2019) and AdaRound (Nagel et al. 2020) in
NumPy, float64, by their published formulas.

    python scripts/ptq_golden.py > tests/golden/ptq_methods.json

Weights and inputs are whole numbers of a linear congruential sequence (scripts/gptq_golden.py).
"""
import json

import numpy as np


class Sequence:
    def __init__(self, seed):
        self.state = seed

    def matrix(self, rows, cols):
        out = np.empty(rows * cols)
        for i in range(rows * cols):
            self.state = (self.state * 1664525 + 1013904223) % 2**32
            out[i] = (self.state >> 24) % 17 - 8
        return out.reshape(rows, cols)


def equalize(sizes):
    """Factors of the channels between linear layers of these sizes; row i of each weight is multiplied by i + 1."""
    w = [Sequence(11 + n).matrix(o, k) * np.arange(1, o + 1)[:, None] for n, (k, o) in enumerate(zip(sizes, sizes[1:]))]
    w = [np.float64(np.float32(m / 64)) for m in w]
    factors = [np.ones(m.shape[0]) for m in w[:-1]]
    for _ in range(50):
        change = 0
        for n, factor in enumerate(factors):
            r1, r2 = np.abs(w[n]).max(1), np.abs(w[n + 1]).max(0)
            t = np.sqrt(r1 / r2)
            w[n], w[n + 1], factors[n] = w[n] / t[:, None], w[n + 1] * t, factor * t
            change = max(change, np.abs(t - 1).max())
        if change < 0.01:
            break
    return {"sizes": sizes, "factors": [f.tolist() for f in factors]}


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def adaround(w, x, y, scale, lo, hi, steps=1000):
    """The whole batch in each step, x [n, k] with outputs y [n, o] less their means: the layer has a bias."""
    x, y = x - x.mean(0), y - y.mean(0)
    n, h = len(x), x.T @ x / len(x)
    mean = np.diag(h).mean()
    u = np.clip(w / scale[:, None], lo, hi)
    floor = np.minimum(np.floor(u), hi - 1)
    part = (u - floor + 0.1) / 1.2
    v = np.log(part / (1 - part))
    m, s = np.zeros_like(v), np.zeros_like(v)
    for t in range(1, steps + 1):
        sg = sigmoid(v)
        raw = 1.2 * sg - 0.1
        soft = np.clip(raw, 0, 1)
        residual = x @ (scale[:, None] * (floor + soft)).T - y  # [n, o]
        g = 2 * (residual.T @ x / n) * scale[:, None] / (scale[:, None] ** 2 * mean)
        beta = 20 - 18 * max(t - steps // 5, 0) / (steps - steps // 5)
        if t > steps // 5:
            off = 2 * soft - 1
            g -= 0.1 * beta * 2 * np.sign(off) * np.abs(off) ** (beta - 1)
        g = np.where((raw > 0) & (raw < 1), g * 1.2 * sg * (1 - sg), 0)
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        v = v - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
    return floor + (np.clip(1.2 * sigmoid(v) - 0.1, 0, 1) >= 0.5)


def rounded(o, k, n, lo, hi):
    w = Sequence(3).matrix(o, k) + 0.125 * Sequence(5).matrix(o, k)
    a = Sequence(7).matrix(n, k)
    x = a + np.roll(a, -1, 1) + 2 * np.roll(a, -3, 1) + 1
    y = x @ w.T + 0.5
    scale = np.float64(np.abs(w).max(1).astype(np.float32) / np.float32(hi))
    codes = adaround(w, x, y, scale, lo, hi)

    def error(c):
        d = (x - x.mean(0)) @ (w - scale[:, None] * c).T
        return (d * d).mean(0).sum()

    nearest = np.clip(np.rint(w / scale[:, None]), lo, hi)
    return {"o": o, "k": k, "n": n, "lo": lo, "hi": hi, "codes": [" ".join(map(str, r)) for r in codes.astype(int).tolist()],
            "error": error(codes), "nearest": error(nearest)}


print(json.dumps({"equalize": [equalize([64, 8, 6, 10]), equalize([64, 5, 10])],
                  "adaround": [rounded(4, 12, 64, -7, 7), rounded(5, 40, 256, -7, 7), rounded(3, 24, 128, -1, 1)]}, indent=1))
