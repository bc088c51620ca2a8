#!/usr/bin/env python3
"""A referee for the PTX that nvcc writes for the kernels of tensor cores.

    python3 scripts/ptx_referee [--quick | --all | --faults | --kernel NAME | --self-test]
                                 [--list] [--nvcc PATH] [--cxx PATH] [--build FOLDER] [--jobs N]

It compiles kernels to PTX, executes that lane by lane as the PTX ISA says, and compares every result with int64 sums (products
of floats: with fp64, within a bound). It was written from the ISA's text alone, but for the ends of rows that TMA stores (an H100
showed them: copies.py), so that a misreading in tests/emulation/cuda cannot hide in it, and it sees what the emulation does not: the
compiler's own code, fragments, descriptors and proxies.
What it does not see, and when to run it: docs/cuda.md.

  --quick       three kernels and four planted faults, 15 s (default)
  --all         every case, with asynchronous copies that land late and at once, and every planted fault
  --faults      the planted faults alone
  --kernel X    the cases whose name contains X
  --self-test   small programs alone, of which Python's integers know the result; they run before all others too
  --list        prints the names of cases and faults, runs nothing

Each line: the case, when asynchronous copies land, EQUAL or the first element that differs, steps (instructions of groups of lanes),
seconds. A planted fault must be seen: a fault, a deadlock or another result. An instruction that the referee does not know is
an error. Exit code 0: all is well; 1: not; 77: nvcc, the C++ compiler or NumPy is missing.

  ptx.py            reads PTX: statements, operands, parameters, shared variables
  memory.py         global and shared memory, who wrote what through which proxy, mbarriers
  machine.py        the lanes of a cluster, and the order in which they run
  arithmetic.py     instructions of one lane; storage.py: loads, stores, atomics, cp.async; barriers.py: barriers, shuffles
  tensor_cores.py   mma.sync, ldmatrix, stmatrix; wgmma.py; copies.py: TMA and mbarriers
  arguments.cpp     writes the arguments of a kernel, by the project's own headers; build.py compiles it and the kernels
  self_test.py      small programs; cases*.py: kernels, shapes, expected results; faults.py: edits of the PTX

A new kernel needs a case; a new instruction a function with `@instruction` and the section of the ISA that it follows.
"""
import argparse
import concurrent.futures
import functools
import multiprocessing
import os
import sys
import time

sys.dont_write_bytecode = True
SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"  # may have NumPy where the first python3 of the PATH has not


def skip(reason):
    print(f"ptx_referee: skipped, {reason}")
    sys.exit(SKIPPED)


def import_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        if sys.executable != SYSTEM_PYTHON and os.path.exists(SYSTEM_PYTHON):
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
        skip("no NumPy (package python3-numpy)")


for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy: the processes are the threads
    os.environ.setdefault(threads, "1")
import_numpy()

import arithmetic  # noqa: E402,F401  families of instructions register what they execute
import barriers  # noqa: E402,F401
import build  # noqa: E402
import cases  # noqa: E402
import cases_mma  # noqa: E402
import cases_orders  # noqa: E402
import cases_wgmma  # noqa: E402
import copies  # noqa: E402,F401
import faults  # noqa: E402
import self_test  # noqa: E402
import storage  # noqa: E402,F401
import tensor_cores  # noqa: E402,F401
import wgmma  # noqa: E402,F401
from memory import Fault  # noqa: E402

CASES = {case.name: case for case in (*cases_mma.mma_cases(), *cases_wgmma.wgmma_cases(), *cases_orders.orders_cases())}
QUICK = [(faults.WEIGHTS, "late"), (faults.WIDE, "early"), (faults.FRAGMENTS, "late")]


def options():
    parser = argparse.ArgumentParser(prog="ptx_referee", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true")
    which.add_argument("--all", action="store_true")
    which.add_argument("--faults", action="store_true")
    which.add_argument("--kernel", metavar="NAME")
    which.add_argument("--self-test", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--nvcc", default="", metavar="PATH")
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"), metavar="PATH")
    parser.add_argument("--build", default=os.path.join(build.ROOT, "build", "ptx_referee"), metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    return parser.parse_args()


def chosen(given):
    """Pairs (case, timing) and planted faults."""
    every = [(name, timing) for name, case in CASES.items() for timing in case.timings]
    if given.all or given.list:
        return every, faults.FAULTS
    if given.faults:
        return [], faults.FAULTS
    if given.kernel:
        return [pair for pair in every if given.kernel in pair[0]], []
    return QUICK, [fault for fault in faults.FAULTS if fault.name in faults.QUICK]


def needed(pairs, planted):
    """Kernels by (source, arch)."""
    wanted = {}
    for name in [name for name, _ in pairs] + [fault.case for fault in planted]:
        case = CASES[name]
        wanted.setdefault((case.source, case.arch), set()).add(case.kernel)
    return wanted


@functools.lru_cache(maxsize=None)
def make_arguments(program):
    return build.Arguments(program)


def run_pair(paths, program, pair):
    case = CASES[pair[0]]
    return cases.run_case(case, build.read(paths[case.source, case.arch]), make_arguments(program), pair[1])


def run_planted(paths, program, planted):
    """The outcome; its text is an error if the edit is no longer possible."""
    case = CASES[planted.case]
    try:
        text = planted.edit(build.read(paths[case.source, case.arch]), case.kernel)
    except Fault as fault:
        return cases.Outcome(planted.name, planted.timing, f"ERROR {fault}", True, 0, 0.0)
    return cases.run_case(case, text, make_arguments(program), planted.timing)


def report(name, timing, verdict, outcome):
    print(f"{name:62} {timing:5}  {verdict}  {outcome.steps} steps {outcome.seconds:.1f} s", flush=True)


def run(given, paths, program, pairs, planted):
    """Runs all in `jobs` processes; returns the number of those that are red."""
    red = 0
    with concurrent.futures.ProcessPoolExecutor(given.jobs, multiprocessing.get_context("fork")) as pool:
        outcomes = pool.map(functools.partial(run_pair, paths, program), pairs)
        seen = pool.map(functools.partial(run_planted, paths, program), planted)
        for (name, timing), outcome in zip(pairs, outcomes):
            red += not outcome.equal
            report(name, timing, outcome.text, outcome)
        for fault, outcome in zip(planted, seen):
            is_seen = not outcome.equal and fault.seen_by in outcome.text
            red += not is_seen
            report("planted: " + fault.name, fault.timing, ("SEEN: " if is_seen else "NOT SEEN: ") + outcome.text, outcome)
    return red


def main():
    given = options()
    pairs, planted = chosen(given)
    if given.list:
        print("\n".join(["cases:", *CASES, "planted faults:", *(fault.name for fault in planted)]))
        return 0
    if not pairs and not planted:
        print(f"ptx_referee: no case is named {given.kernel}")
        return 1
    wrong = self_test.run()
    if given.self_test:
        return 1 if wrong else 0
    nvcc = build.find_nvcc(given.nvcc)
    if nvcc is None:
        skip(f"no nvcc ({given.nvcc})" if given.nvcc else "no nvcc")
    if build.shutil.which(given.cxx) is None:
        skip(f"no C++ compiler {given.cxx}")
    begin = time.monotonic()
    work = build.Build(given.build, nvcc, given.cxx, given.jobs)
    try:
        paths, program = work.ptx(needed(pairs, planted))
    except Fault as fault:
        print(f"ptx_referee: does not compile: {fault}")
        return 1
    compiled = time.monotonic()
    for name, seconds in work.seconds.items():
        print(f"compiled {name} in {seconds:.1f} s")
    red = wrong + run(given, paths, program, pairs, planted)
    print(f"ptx_referee: {len(pairs)} runs, {len(planted)} planted faults, {red} red; {compiled - begin:.1f} s to compile, "
          f"{time.monotonic() - compiled:.1f} s to run")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
