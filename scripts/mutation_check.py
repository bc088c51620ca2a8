#!/usr/bin/env python3
"""Breaks one index map of tests/cuda/mutations.txt after another and expects that a test turns red.

    scripts/mutation_check.py [NAME...]      all mutations, or those whose names match (globs such as 'mma/*')
    scripts/mutation_check.py --check        only whether each text occurs once and each test exists: no build

Everything happens in a copy of the sources, build/mutation/source. A mutation is killed if its test, which passes without it,
fails, crashes or does not end in time. Exit code 1: one survived or does not compile; 2: the list or the unbroken tree is at
fault.
"""
import argparse
import ast
import collections
import fnmatch
import glob
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "tests", "cuda", "mutations.txt")
COPY, BUILD = (os.path.join(ROOT, "build", "mutation", x) for x in ("source", "build"))
CONFIGURE = ["cmake", "--preset", "release", "-S", COPY, "-B", BUILD, "-DBITGRAD_WITH_CUDA=OFF", "-DBITGRAD_BUILD_APPS=OFF"]

Mutation = collections.namedtuple("Mutation", "name about file variables program test old new")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def parse(text):
    found, head, entry = [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if m := re.fullmatch(r"\[([\w/-]+)\] (.+)", line):
            entry = dict(name=m[1], about=m[2], old=[], new=[])
            found.append(entry)
        elif m := re.fullmatch(r"file: (\S+)", line):
            head.update(file=m[1])
        elif m := re.fullmatch(r"test: ((?:[A-Z_]+=\S+ )*)(\w+) \"(.+)\"", line):
            head.update(variables=m[1], program=m[2], test=m[3])
        elif entry and line[:1] in ("-", "+"):
            entry["old" if line[0] == "-" else "new"].append(line[1:])
            entry.update(head)
        elif line and line[0] != "#":
            sys.exit(f"{LIST}:{number}: got '{line}', expected [name] what, file:, test:, -, + or #")
    return [Mutation(**{**e, "old": "\n".join(e["old"]), "new": "\n".join(e["new"])}) for e in found]


def test_names(program):
    """As the sources of tests/<layer> spell them."""
    for path in glob.glob(os.path.join(ROOT, "tests", program.removeprefix("test_"), "*_test.cpp")):
        for literals in re.findall(r'\bTEST_CASE(?:_METHOD)?\((?:[\w:]+,)?\s*((?:"(?:[^"\\\n]|\\.)*"\s*)+)', read(path)):
            yield ast.literal_eval("(" + literals + ")").lower()


def faults(mutations):
    names = {program: list(test_names(program)) for program in {m.program for m in mutations}}
    for name, count in collections.Counter(m.name for m in mutations).items():
        if count > 1:
            yield f"[{name}]: {count} entries have this name"
    for m in mutations:
        count = read(ROOT, m.file).count(m.old) if m.old and os.path.isfile(os.path.join(ROOT, m.file)) else 0
        if count != 1 or m.old == m.new:
            yield f"[{m.name}]: the text to replace occurs {count} times in {m.file}, expected once, and another text instead"
        if not fnmatch.filter(names[m.program], m.test.lower()):
            yield f"[{m.name}]: {m.program} has no test case '{m.test}'"


def write(name, text):
    """Into the copy; an equal file keeps its time, so that it is not compiled again."""
    path = os.path.join(COPY, name)
    if not os.path.isfile(path) or open(path, "rb").read() != text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text)


def copy_sources():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, check=True)
    files = {n for n in listed.stdout.decode().split("\0") if n and os.path.isfile(os.path.join(ROOT, n))}
    for folder, _, present in os.walk(COPY):
        for path in (os.path.join(folder, name) for name in present):
            if os.path.relpath(path, COPY) not in files:
                os.remove(path)
    for name in files:
        with open(os.path.join(ROOT, name), "rb") as file:
            write(name, file.read())


def said(command):
    """Nothing if the command succeeds, else the end of its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-4000:] or "no output"


def compile_errors(program):
    return said(["cmake", "--build", BUILD, "--target", program, "-j", str(os.cpu_count())])


def red(m, limit):
    """Why the test did not pass, or nothing."""
    command = [os.path.join(BUILD, "bin", "tests", m.program), m.test, "--abort", "-w", "NoTests"]
    try:
        variables = dict(v.split("=", 1) for v in m.variables.split())
        code = subprocess.run(command, capture_output=True, timeout=limit,
                              env=dict(os.environ, BITGRAD_GEMM_COSTS="/nonexistent/gemm_costs.txt", **variables)).returncode
    except subprocess.TimeoutExpired:
        return f"no end after {limit:.0f} s"
    return f"ended with {code}" if code else ""


def run(mutations):
    """The names of those that were not killed."""
    copy_sources()
    if error := said(CONFIGURE):
        fail("the copy cannot be configured:\n" + error)
    seconds = {}
    for m in mutations:
        test = m.variables + m.program + m.test
        if test in seconds:
            continue
        if error := compile_errors(m.program):
            fail(f"{m.program} does not compile without any mutation:\n{error}")
        start = time.monotonic()
        if why := red(m, 600):
            fail(f"without any mutation, {m.program} '{m.test}' {why}")
        seconds[test] = time.monotonic() - start
    for m in mutations:
        text = read(ROOT, m.file)
        write(m.file, text.replace(m.old, m.new).encode())
        error = compile_errors(m.program)
        why = "" if error else red(m, max(60, 20 * seconds[m.variables + m.program + m.test]))
        write(m.file, text.encode())
        print(f"{m.name}: " + (f"killed, {m.program} '{m.test}' {why}" if why else
                               "does not compile:\n" + error if error else f"SURVIVED {m.program} '{m.test}'"), flush=True)
        if not why:
            yield m.name


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    mutations = parse(read(LIST))
    if wrong := list(faults(mutations)):
        fail("\n".join(wrong))
    if args.check:
        return print(f"{len(mutations)} mutations: each text occurs once, each test exists")
    chosen = [m for m in mutations if any(fnmatch.fnmatchcase(m.name, g) for g in args.names or "*")]
    alive = list(run(chosen))
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutations were killed" + (", not: " + ", ".join(alive) if alive else ""))
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
