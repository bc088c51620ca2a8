#!/usr/bin/env python3
"""Where the time of a training step goes: samples of `perf`, by op and by what the op does.

  python scripts/step_profile.py [--rate 499] [--json FILE] -- build/release/bin/bench_step --net cnv --no-memory \\
                                 --no-parts --repeat 20

Records the program's processor time with call stacks (perf record, event cpu-clock, stacks unwound by the tables that
C++ exceptions use, so any build will do) and prints two tables, in percent of the samples within steps of training
(`Learner::microbatch`), or within functions whose name matches --within, such as conv2d or Conv2d::backward of
`bench_gemm --conv`:
  by op:    forward or backward of an op, or what the learner does itself;
  by work:  what runs there: gather, add (sums of windows added into images), product, packing, rounding of gradients,
            norm, pool, quantize, optimizer, requantize, elementwise, page faults, copies and fills, other.
The rules that tell work from names of functions stand below, in the order in which they are tried.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

# A rule is tried on the names of a whole stack; the first that finds something wins.
WORK = [
    ("page faults", r"clear_page|page_fault|handle_mm_fault|do_madvise"),
    ("gather", r"gather_windows|ByteGather|gather_bits"),
    ("add", r"add_windows"),
    ("rounding of gradients", r"to_int8_codes|to_bf16_codes|FoldedGradient|image_codes"),
    ("packing", r"kernels::pack\b|put_b|packed_b|detail::\(anonymous namespace\)::packed"),
    ("product", r"gemm|conv_direct|conv_weights_direct|run_product|RowBlocks|direct_"),
    ("optimizer", r"Optimizer|update_rows|UpdateRule|FusedUpdate"),
    ("requantize", r"[Rr]equantize|refresh_codes|Parameter::"),
    ("loss", r"squared_hinge|SquaredHinge|[Cc]ross_?[Ee]ntropy|top_k_count|count_correct"),
    ("norm", r"[Bb]atch_?[Nn]orm|[Tt]ensor_?[Nn]orm|norm_"),
    ("pool", r"[Pp]ool"),
    ("quantize", r"[Qq]uantize|\bste_|SteRule"),
    ("elementwise", r"pointwise|unary|Unary|[Hh]ard[Tt]anh|elementwise|::Add::|Shortcut|shortcut|Shift|Prelu"),
    ("copies and fills", r"memcpy|memmove|memset|copy_from|fill_zero|CpuBackend::(copy|fill)"),
]
OP = re.compile(r"::(\w+)::(forward|backward)(?![_\w])")


def record(command, rate, path):
    result = subprocess.run(["perf", "record", "-q", "-o", path, "-e", "cpu-clock", "-F", str(rate), "--call-graph",
                             "dwarf,32768", "--"] + command, stdout=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"step_profile: '{' '.join(command)}' under perf record ended with {result.returncode}")


def stacks(path):
    """Lists of names of functions, innermost first."""
    text = subprocess.run(["perf", "script", "-i", path, "--no-inline", "-F", "ip,sym"], capture_output=True, text=True,
                          check=True).stdout
    for block in text.split("\n\n"):
        names = [line.split(maxsplit=1)[-1] for line in block.splitlines() if line.strip()]
        if names:
            yield names


def op_of(names):
    for name in names:
        found = OP.search(name)
        if found and found.group(1) not in ("Module", "Sequential", "Step", "Learner"):
            return f"{found.group(1)} {found.group(2)}"
    text = "\n".join(names)
    if re.search(r"Optimizer|update_rows", text):
        return "update"
    if re.search(r"[Rr]equantize", text):
        return "requantize"
    return "learner"


def work_of(names, within):
    text = "\n".join(names[:next(i for i, n in enumerate(names) if within.search(n))])
    for work, pattern in WORK:
        if re.search(pattern, text):
            return work
    return "other"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rate", type=int, default=499, help="samples a second")
    p.add_argument("--within", default=r"Learner::microbatch", help="a pattern: samples within these functions count")
    p.add_argument("--leaves", type=int, default=0, help="prints the hottest functions of each work too, so many")
    p.add_argument("--json", help="writes the tables to this file")
    p.add_argument("command", nargs="+", help="what to run, behind --")
    a = p.parse_args()
    within = re.compile(a.within)
    ops, works, cells = collections.Counter(), collections.Counter(), collections.Counter()
    leaves = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "perf.data")
        record(a.command, a.rate, path)
        for names in stacks(path):
            if not any(within.search(n) for n in names):
                continue
            op, work = op_of(names), work_of(names, within)
            ops[op] += 1
            works[work] += 1
            cells[op, work] += 1
            leaves[work][names[0]] += 1
    total = sum(ops.values())
    if total == 0:
        sys.exit(f"step_profile: no sample lies within {a.within}. Is it a function of the program? Else use a longer run")
    percent = {key: 100 * n / total for key, n in cells.items()}
    print(f"{total} samples\n\nby work, %")
    for work, n in works.most_common():
        print(f"  {work:24} {100 * n / total:5.1f}")
        for name, count in leaves[work].most_common(a.leaves):
            print(f"      {100 * count / total:5.1f}  {name[:120]}")
    print("\nby op, %")
    for op, n in ops.most_common():
        parts = sorted(((w, v) for (o, w), v in percent.items() if o == op and v >= 0.5), key=lambda x: -x[1])
        print(f"  {op:32} {100 * n / total:5.1f}   " + ", ".join(f"{w} {v:.1f}" for w, v in parts))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(command=a.command, samples=total, work={w: 100 * n / total for w, n in works.items()},
                           op={o: 100 * n / total for o, n in ops.items()},
                           cells=[dict(op=o, work=w, percent=v) for (o, w), v in percent.items()]), f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
