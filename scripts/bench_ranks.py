#!/usr/bin/env python3
"""Two parts of scripts/bench_ranks.sh: the rival of bench_ranks, and the table.

    scripts/bench_ranks.py ddp RANK RANKS ADDRESS INTERFACE [--layers L] [--size N] [--microbatches M] [--samples S]
                           [--repeat R]
    scripts/bench_ranks.py table ROWS

ddp: one rank of PyTorch's DistributedDataParallel over gloo, with the layers, Adam and microbatches of bench_ranks, in
fp32. Rank 0 prints a row with the fields of bench_ranks, which are measured in the same way: the passes under no_sync
are those that do not end the window. Adam is fused, and gradients are views of DDP's bucket that are set to zero: with
copies, and with gradients that are set to None, steps took 1.2 to 2.3 times as long (torch 2.15, two ranks on one machine).

table: ROWS has a JSON object in each line, with "link" (such as "1gbit"), "who" and the fields of a row. Printed are
medians over the rows of each who on each link, and the ratios to "ddp" of the same turn: their median, least and most.
"""
import argparse
import json
import statistics
import time


def interface_bytes(name):
    with open(f"/sys/class/net/{name}/statistics/tx_bytes") as f:
        return int(f.read())


def steps(torch, model, a, rank, ranks):
    """Yields (seconds of a window, those of its forward and backward passes)."""
    own = a.microbatches // ranks
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(rank)
    x = torch.rand(a.samples, a.size, generator=generator) * 2 - 1
    labels = (7 * torch.arange(a.samples) + 1) % a.size

    def microbatch():
        torch.nn.functional.cross_entropy(model(x), labels).div(own).backward()

    while True:
        start = time.perf_counter()
        with model.no_sync():
            for _ in range(own - 1):
                microbatch()
        last = time.perf_counter()
        microbatch()
        adam.step()
        adam.zero_grad(set_to_none=False)
        yield time.perf_counter() - start, (last - start) / (own - 1) * own


def ddp(a):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://{a.address}:29511", rank=a.rank, world_size=a.ranks)
    layers = torch.nn.Sequential(*(torch.nn.Linear(a.size, a.size, bias=False) for _ in range(a.layers)))
    model = torch.nn.parallel.DistributedDataParallel(layers, gradient_as_bucket_view=True)
    times = steps(torch, model, a, a.rank, a.ranks)
    for _ in range(2):  # not measured: the first steps make buffers and connections
        next(times)
    before = interface_bytes(a.interface)
    all_times = [next(times) for _ in range(a.repeat)]
    sent = interface_bytes(a.interface) - before
    if a.rank == 0:
        print(json.dumps(dict(
            engine=f"gloo (PyTorch {torch.__version__})", step_s=statistics.median(s for s, _ in all_times),
            forward_backward_s=statistics.median(f for _, f in all_times),
            rest_s=statistics.median(s - f for s, f in all_times),
            interface_bytes_a_weight=sent / a.repeat / a.layers / a.size**2)))
    torch.distributed.destroy_process_group()


def table(a):
    rows = {}
    with open(a.rows) as f:
        for line in f:
            row = json.loads(line)
            rows.setdefault((row["link"], row["who"]), []).append(row)

    def middle(key, field, digits=3):
        values = [row[field] for row in rows[key] if field in row]
        return f"{statistics.median(values):.{digits}f}" if values else "-"

    def ratio(key, field):
        ratios = [row[field] / rival[field] for row, rival in zip(rows[key], rows.get((key[0], "ddp"), []))]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"

    print("| link | who | turns | step s | forward backward s | rest s | step, x ddp | rest, x ddp | bytes a weight | by interface |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for key in rows:
        cells = [*key, str(len(rows[key])), *(middle(key, field) for field in ("step_s", "forward_backward_s", "rest_s"))]
        cells += ["1", "1"] if key[1] == "ddp" else [ratio(key, "step_s"), ratio(key, "rest_s")]
        cells += [middle(key, "bytes_a_weight"), middle(key, "interface_bytes_a_weight")]
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("ddp")
    p.set_defaults(run=ddp)
    p.add_argument("rank", type=int)
    p.add_argument("ranks", type=int)
    p.add_argument("address")
    p.add_argument("interface")
    p.add_argument("--layers", type=int, default=1)
    p.add_argument("--size", type=int, default=4096)
    p.add_argument("--microbatches", type=int, default=4)
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--repeat", type=int, default=3)
    p = commands.add_parser("table")
    p.set_defaults(run=table)
    p.add_argument("rows")
    a = parser.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
