#!/usr/bin/env python3
"""Writes tests/golden/torch_gpt.json: a small GPT-2 and a small Llama by PyTorch in float64.

    pip install numpy torch
    OMP_NUM_THREADS=1 python scripts/torch_gpt_golden.py tests/golden/torch_gpt.json

tests/train/torch_gpt_test.cpp makes the same networks and compares. Both have 2 layers of width 64 and 4 heads.
"gpt": learned positions, layer_norm with beta, gelu (erf), biases but in q, k, v, the table of tokens is the head.
"llama": rope (halves), rms_norm, swiglu of width 96, 2 heads of k and v, no biases, a head of its own.
q, k, v are one weight, rows in this order; gate and up too.

Numbers are drawn by a linear congruential generator from the seed that stands beside them (units of
scripts/torch_conv_golden.py), times `factor`, plus `offset`. Tokens: (state >> 33) mod VOCABULARY; targets are the next
token, one of them (IGNORED) does not count.

"logits" are in full. The gradient of a matrix is told by two products with numbers of units: G u [rows] and
v G [columns], so that each of its elements counts. "losses": of STEPS steps of AdamW on two batches in turn, weight decay
on matrices alone, gradients clipped to norm CLIP; "squares": of each parameter behind them.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
VOCABULARY, T, BATCH, D, HEADS, KV, FFN = 31, 20, 3, 64, 4, 2, 96
STEPS, LR, BETAS, EPS, DECAY, CLIP = 10, 2e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
IGNORED = 17  # its index in a batch


def draws(seed, count):
    state, out = seed, []
    for _ in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        out.append(state)
    return out


def units(seed, *shape):
    numbers = [((s >> 40) - 2**23) * 2.0**-23 for s in draws(seed, math.prod(shape))]
    return torch.tensor(numbers).reshape(shape)


def gpt_parameters():
    """name, shape, factor, offset: in the order of the network in C++."""
    out = [("tokens", (VOCABULARY, D), 0.5, 0), ("positions", (T, D), 0.3, 0)]
    for i in "01":
        out += [("gamma1." + i, (D,), 0.3, 1), ("beta1." + i, (D,), 0.2, 0), ("qkv." + i, (3 * D, D), 0.3, 0),
                ("out." + i, (D, D), 0.2, 0), ("out_bias." + i, (D,), 0.2, 0),
                ("gamma2." + i, (D,), 0.3, 1), ("beta2." + i, (D,), 0.2, 0), ("up." + i, (4 * D, D), 0.2, 0),
                ("up_bias." + i, (4 * D,), 0.2, 0), ("down." + i, (D, 4 * D), 0.2, 0), ("down_bias." + i, (D,), 0.2, 0)]
    return out + [("gamma", (D,), 0.3, 1), ("beta", (D,), 0.2, 0)]


def llama_parameters():
    d = D // HEADS
    out = [("tokens", (VOCABULARY, D), 0.5, 0)]
    for i in "01":
        out += [("gamma1." + i, (D,), 0.3, 1), ("qkv." + i, ((HEADS + 2 * KV) * d, D), 0.3, 0), ("out." + i, (D, D), 0.2, 0),
                ("gamma2." + i, (D,), 0.3, 1), ("gate_up." + i, (2 * FFN, D), 0.2, 0), ("down." + i, (D, FFN), 0.2, 0)]
    return out + [("gamma", (D,), 0.3, 1), ("head", (VOCABULARY, D), 0.3, 0)]


def attention(qkv, kv_heads, rope=None):
    n, t, _ = qkv.shape
    d = D // HEADS
    q, k, v = qkv.split([HEADS * d, kv_heads * d, kv_heads * d], -1)
    q, k, v = (x.reshape(n, t, -1, d).transpose(1, 2) for x in (q, k, v))
    if rope is not None:
        q, k = rope(q), rope(k)
    k, v = (x.repeat_interleave(HEADS // kv_heads, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, D)


def turn(x):
    """Rotary positions, pairs i and i + d/2. The table is float32, as ours."""
    d = x.shape[-1]
    angles = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    c, s = (a.float().double()[: x.shape[-2]] for a in (angles.cos(), angles.sin()))
    a, b = x.split(d // 2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def gpt(p, ids):
    x = p["tokens"][ids] + p["positions"][: ids.shape[1]]
    for i in "01":
        h = F.layer_norm(x, (D,), p["gamma1." + i], p["beta1." + i], 1e-5)
        x = x + F.linear(attention(h @ p["qkv." + i].T, HEADS), p["out." + i], p["out_bias." + i])
        h = F.layer_norm(x, (D,), p["gamma2." + i], p["beta2." + i], 1e-5)
        h = F.gelu(F.linear(h, p["up." + i], p["up_bias." + i]))
        x = x + F.linear(h, p["down." + i], p["down_bias." + i])
    return F.layer_norm(x, (D,), p["gamma"], p["beta"], 1e-5) @ p["tokens"].T


def llama(p, ids):
    x = p["tokens"][ids]
    for i in "01":
        h = F.rms_norm(x, (D,), p["gamma1." + i], 1e-5)
        x = x + attention(h @ p["qkv." + i].T, KV, turn) @ p["out." + i].T
        gate, up = (F.rms_norm(x, (D,), p["gamma2." + i], 1e-5) @ p["gate_up." + i].T).split(FFN, -1)
        x = x + (F.silu(gate) * up) @ p["down." + i].T
    return F.rms_norm(x, (D,), p["gamma"], 1e-5) @ p["head"].T


def short(t):
    return [float("%.9g" % v) for v in t.detach().reshape(-1).tolist()]


def told(gradient, seed):
    if gradient.dim() < 2:
        return {"all": short(gradient)}
    rows, columns = gradient.shape
    return {"rows": short(gradient @ units(seed, columns)), "columns": short(units(seed + 1, rows) @ gradient)}


def case(name, parameters, forward, seed):
    p = {}
    for k, (key, shape, factor, offset) in enumerate(parameters):
        p[key] = (units(seed + k, *shape) * factor + offset).requires_grad_()
    stream = torch.tensor([(s >> 33) % VOCABULARY for s in draws(seed + 90, 2 * BATCH * (T + 1))]).reshape(2, BATCH, T + 1)
    ids, targets = stream[:, :, :-1], stream[:, :, 1:].clone()
    targets.reshape(2, -1)[:, IGNORED] = -100

    def loss_of(batch):
        logits = forward(p, ids[batch])
        return logits, F.cross_entropy(logits.reshape(-1, VOCABULARY), targets[batch].reshape(-1), ignore_index=-100)

    logits, loss = loss_of(0)
    loss.backward()
    out = {"name": name, "seed": seed, "logits": short(logits), "loss": loss.item(),
           "parameters": [{"name": key, "shape": list(shape), "factor": factor, "offset": offset,
                           **told(p[key].grad, seed + 100 + 2 * k)}
                          for k, (key, shape, factor, offset) in enumerate(parameters)]}
    groups = [{"params": [w for w in p.values() if w.dim() >= 2], "weight_decay": DECAY},
              {"params": [w for w in p.values() if w.dim() < 2], "weight_decay": 0.0}]
    rule = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for step in range(STEPS):
        rule.zero_grad()
        _, loss = loss_of(step % 2)
        loss.backward()
        norm = math.sqrt(sum(w.grad.square().sum().item() for w in p.values()))
        for w in p.values():
            w.grad *= min(1.0, CLIP / norm)
        rule.step()
        losses.append(loss.item())
    for entry in out["parameters"]:
        entry["squares"] = p[entry["name"]].detach().square().sum().item()
    return out | {"losses": losses}


def main():
    cases = [case("gpt", gpt_parameters(), gpt, 1000), case("llama", llama_parameters(), llama, 2000)]
    with open(sys.argv[1], "w") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write('{"torch": "%s",\n"networks": [\n%s\n]}\n' % (torch.__version__, lines))
    for c in cases:
        print(c["name"], c["loss"], c["losses"][-1])


main()
