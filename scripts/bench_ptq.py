#!/usr/bin/env python3
"""The rival of bench_ptq: GPTQ (Frantar et al. 2022, arXiv 2210.17323) in NumPy, float64, blocks of 128 columns.

    scripts/bench_ptq.py SIZE [THREADS [CODES]]

Weights [SIZE, SIZE], int4 with a scale a row, and inputs are those of apps/bench/bench_ptq.cpp. Prints a JSON object:
"seconds" (with one thread those of the processor) and "error", that of the outputs relative to the outputs. CODES: a
file that its codes are written to, a byte each. Exit status 77: no NumPy.
"""
import json
import os
import sys
import time

size, threads = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = str(threads)
try:
    import numpy as np
except ImportError:
    print("the Python package numpy is not installed", file=sys.stderr)
    sys.exit(77)

ROWS, BLOCK, DAMP = 512, 128, 0.01


def drawn(rows, cols, seed):
    n = rows * cols
    powers = np.cumprod(np.full(n, 1664525, np.uint32), dtype=np.uint32)
    sums = np.cumsum(np.concatenate([[1], powers[:-1]]).astype(np.uint32), dtype=np.uint32)
    states = powers * np.uint32(seed) + sums * np.uint32(1013904223)
    return ((states >> np.uint32(24)) % 17).astype(np.float64).reshape(rows, cols) - 8


def gptq(w, h, scale):
    w, k = w.copy(), w.shape[1]
    order = np.argsort(-np.diag(h), kind="stable")
    w, h = w[:, order], h[np.ix_(order, order)].copy()
    h[np.diag_indices(k)] += DAMP * np.diag(h).mean()
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    codes = np.empty_like(w)
    for begin in range(0, k, BLOCK):
        end = min(begin + BLOCK, k)
        errors = np.empty((w.shape[0], end - begin))
        for j in range(begin, end):
            codes[:, j] = np.clip(np.rint(w[:, j] / scale), -7, 7)
            e = (w[:, j] - codes[:, j] * scale) / u[j, j]
            w[:, j + 1 : end] -= e[:, None] * u[j, j + 1 : end]
            errors[:, j - begin] = e
        w[:, end:] -= errors @ u[begin:end, end:]
    out = np.empty_like(codes)
    out[:, order] = codes
    return out


weights, x = drawn(size, size, 3), drawn(ROWS, size, 7)
hessian = x.T @ x / ROWS + np.eye(size)
scales = (np.abs(weights).max(1).astype(np.float32) / np.float32(7)).astype(np.float64)
clock = time.process_time if threads == 1 else time.perf_counter
start = clock()
result = gptq(weights, hessian, scales)
seconds = clock() - start
if len(sys.argv) > 3:
    result.astype(np.int8).tofile(sys.argv[3])
rest = weights - result * scales[:, None]
print(json.dumps({"seconds": seconds, "error": ((rest @ hessian) * rest).sum() / ((weights @ hessian) * weights).sum()}))
