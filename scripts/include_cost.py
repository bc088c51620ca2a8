#!/usr/bin/env python3
"""How many translation units depend on each header: what a change of it rebuilds. Reads #include lines as text, as if no
line were conditional; headers that the build generates do not count.

  scripts/include_cost.py                             the 20 headers of the project with the most dependents
  scripts/include_cost.py kernels/gemm.h ...          these headers (the end of a path names one)
  scripts/include_cost.py --top 50                    more of them
  scripts/include_cost.py --why ops.h kernels/gemm.h  the shortest chain from the first to the second
"""
import argparse
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("src", "cuda", "apps", "tests", "include")
# Folders that #include lines are relative to, besides the folder of the file itself.
BASES = ("include", "src", "tests", "apps", "apps/bench", ".")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def read_tree():
    """Files of the project, each with the files that it includes directly."""
    paths = [p for folder in SOURCES for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".inc", ".cpp", ".cu")]
    files = {p.relative_to(ROOT).as_posix(): INCLUDE.findall(p.read_text(errors="replace")) for p in paths}

    def resolve(file, target):
        for base in (pathlib.PurePosixPath(file).parent.as_posix(), *BASES):
            path = target if base == "." else f"{base}/{target}"
            if path in files:
                return path
        return None

    return {file: {found for t in targets if (found := resolve(file, t))} for file, targets in files.items()}


def reach(start, edges):
    """What follows from `start` along the edges, each with the file before it."""
    before = {start: None}
    queue = collections.deque([start])
    while queue:
        file = queue.popleft()
        for other in sorted(edges[file]):
            if other not in before:
                before[other] = file
                queue.append(other)
    return before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headers", nargs="*")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--why", nargs=2, metavar=("FROM", "TO"))
    args = parser.parse_args()
    includes = read_tree()
    included_by = collections.defaultdict(set)
    for file, others in includes.items():
        for other in others:
            included_by[other].add(file)

    def find(name):
        found = [f for f in includes if f == name or f.endswith("/" + name)]
        if len(found) != 1:
            parser.error(f"{name}: names {len(found)} files {found}")
        return found[0]

    if args.why:
        start, file = map(find, args.why)
        before = reach(start, includes)
        chain = []
        while file is not None and file in before:
            chain.insert(0, file)
            file = before[file]
        print(" -> ".join(chain) or "no chain")
        return
    units = {f for f in includes if f.endswith((".cpp", ".cu"))}
    cost = {f: len(units & reach(f, included_by).keys()) for f in (map(find, args.headers) if args.headers else includes)}
    chosen = args.headers and cost or {f: n for f, n in cost.items() if f not in units}
    print(f"{len(units)} translation units")
    for file, n in sorted(chosen.items(), key=lambda item: -item[1])[: None if args.headers else args.top]:
        print(f"{n:6}  {file}")


if __name__ == "__main__":
    main()
