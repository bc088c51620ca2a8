#!/usr/bin/env python3
"""Recomputes the steps of tests/golden/update_rules.safetensors (numpy, double) and adafactor.safetensors
(torch.optim.Adafactor, float64) from the weights and gradients in them.

    scripts/update_rules_golden.py           # writes both files
    scripts/update_rules_golden.py --check   # exit status 1 if a value differs by more than 1e-12 of its tensor's largest

Muon: Jordan 2024; scale rms: Liu et al. 2025, arXiv 2502.16982. NorMuon: Li et al. 2025, arXiv 2510.05491. Lion: Chen et al.
2023, arXiv 2302.06675. Rate 0.01, decay 0.1, momentum 0.95 with Nesterov, beta2 0.95; Lion: rate 1e-3, betas 0.9 and 0.99.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
TYPES = {"F32": np.float32, "F64": np.float64}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + x for x in entry["data_offsets"])
            out[name] = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return out


def write(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F32" if x.dtype == np.float32 else "F64", "shape": list(x.shape),
                        "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def orthogonalized(g):
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * (s @ s)) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def muon(w, gradients, normalized):
    m, v = np.zeros_like(w), np.zeros((w.shape[0], 1))
    for g in gradients:
        m = m + 0.05 * (g - m)
        o = orthogonalized(g + 0.95 * (m - g))
        if normalized:
            before = np.linalg.norm(o)
            v = v + 0.05 * ((o * o).mean(1, keepdims=True) - v)
            o = o / (np.sqrt(v) + 1e-10)
            o = o * (before / (np.linalg.norm(o) + 1e-10))
        w = w - 0.01 * 0.1 * w - 0.01 * 0.2 * np.sqrt(max(w.shape)) * o
    return w, m, v


def lion(w, gradients):
    m = np.zeros_like(w)
    for g in gradients:
        w = w - 1e-3 * 0.1 * w - 1e-3 * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
    return w, m


def update_rules(old):
    out = dict(old)
    wide = {name: x.astype(np.float64) for name, x in old.items()}
    for shape in ("wide", "tall", "square"):
        g = wide[f"ns.{shape}.g"]
        u, _, vt = np.linalg.svd(g, full_matrices=False)
        out[f"ns.{shape}.o"], out[f"ns.{shape}.polar"] = orthogonalized(g), u @ vt
        for rule in ("muon", "normuon"):
            head = f"{rule}.{shape}."
            w, m, v = muon(wide[head + "w0"], [wide[head + f"g{i}"] for i in range(4)], rule == "normuon")
            out[head + "w4"], out[head + "m4"] = w, m
            if rule == "normuon":
                out[head + "v4"] = v
    out["lion.w6"], out["lion.m6"] = lion(wide["lion.w0"], [wide[f"lion.g{i}"] for i in range(6)])
    return out


def adafactor(old):
    import torch
    out = dict(old)
    w, v = (torch.tensor(old[name].astype(np.float64), requires_grad=True) for name in ("w0", "v0"))
    optimizer = torch.optim.Adafactor([w, v], lr=1e-2, weight_decay=0.1, eps=(2.0 ** -23, 1e-3), d=1)
    for i in range(1, 6):
        w.grad, v.grad = (torch.tensor(old[f"{name}{i}"].astype(np.float64)) for name in ("g", "gv"))
        optimizer.step()
    out["w5"], out["v5"] = w.detach().numpy(), v.detach().numpy()
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files")
    check, wrong = parser.parse_args().check, []
    for name, make in (("update_rules", update_rules), ("adafactor", adafactor)):
        path = FOLDER / f"{name}.safetensors"
        old = read(path)
        new = make(old)
        if not check:
            write(path, new)
            continue
        for key, x in new.items():
            if np.abs(x - old[key]).max() > 1e-12 * np.abs(old[key]).max():
                wrong.append(f"{path.name}: {key}: differs by {np.abs(x - old[key]).max()}")
    if wrong:
        sys.exit("\n".join(wrong))


main()
