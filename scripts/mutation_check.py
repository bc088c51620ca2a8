#!/usr/bin/env python3
"""Breaks the code on purpose, one place at a time, and expects that a test turns red.

    scripts/mutation_check.py                     every mutation of tests/cuda/mutations.txt
    scripts/mutation_check.py --only 'mma/*'      some (a glob of names; may be given several times)
    scripts/mutation_check.py --list              names and descriptions
    scripts/mutation_check.py --check             the list itself, in a second: no build
    scripts/mutation_check.py --markdown FILE     the latest result of each as a table; runs nothing
    scripts/mutation_check.py --self-test         the script, on a project of two files

The format of the list stands at its head. All happens in a copy of the sources, <work>/source (default: build/mutation),
so a stop leaves no broken tree behind. <work>/results.json keeps the latest result of each mutation.

A mutation is killed when its test program, which passed without it, fails, crashes or runs longer than it may. The exit
code is 1 where one survives or does not compile, 2 where the list or the unbroken tree is at fault.
"""
import argparse
import ast
import collections
import fnmatch
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join("tests", "cuda", "mutations.txt")
FLAGS = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DBITGRAD_WITH_CUDA=OFF",
         "-DBITGRAD_BUILD_APPS=OFF"]
LEAST_LIMIT, SLOWER = 60, 20  # seconds of a test; times what it takes unbroken
OUTPUT_LIMIT = 64 << 20  # bytes of it that are read

Mutation = collections.namedtuple("Mutation", "name about file old new environment program filter line")


class ListError(Exception):
    pass


# ---- the list
def parse(text):
    mutations, entry = [], None

    def close():
        if entry is None:
            return
        where = f"line {entry['line']}: [{entry['name']}]"
        for key in ("file", "test"):
            if key not in entry:
                raise ListError(f"{where}: no '{key}:'")
        words = shlex.split(entry["test"])
        variables = [w for w in words if re.match(r"[A-Z_]+=", w)]
        if len(words) != len(variables) + 2:
            raise ListError(f"{where}: test: got '{entry['test']}', expected [VARIABLE=value ...] program \"filter\"")
        mutations.append(Mutation(entry["name"], entry["about"], entry["file"], "\n".join(entry["old"]),
                                  "\n".join(entry["new"]), dict(v.split("=", 1) for v in variables), words[-2],
                                  words[-1], entry["line"]))

    for number, line in enumerate(text.splitlines(), 1):
        if m := re.fullmatch(r"\[([\w/.-]+)\] (.+)", line):
            close()
            entry = dict(name=m.group(1), about=m.group(2), line=number, old=[], new=[])
        elif not line.strip() or line.startswith("#"):
            continue
        elif entry is None:
            raise ListError(f"line {number}: '{line}' stands before the first [name]")
        elif m := re.fullmatch(r"(file|test): (.+)", line):
            if m.group(1) in entry:
                raise ListError(f"line {number}: a second '{m.group(1)}:' of [{entry['name']}]")
            entry[m.group(1)] = m.group(2)
        elif line[0] in "-+":
            entry["old" if line[0] == "-" else "new"].append(line[1:])
        else:
            raise ListError(f"line {number}: got '{line}', expected [name], file:, test:, -, + or #")
    close()
    return mutations


def mutated(text, mutation):
    count = text.count(mutation.old)
    if not mutation.old or count != 1:
        raise ListError(f"line {mutation.line}: [{mutation.name}]: the text to replace occurs {count} times in "
                        f"{mutation.file}, expected once")
    if mutation.old == mutation.new:
        raise ListError(f"line {mutation.line}: [{mutation.name}]: the texts are equal")
    return text.replace(mutation.old, mutation.new)


def names_of_tests(root, program):
    """Names of the test cases of tests/<layer>, as their sources spell them."""
    names, folder = [], os.path.join(root, "tests", program[len("test_"):])
    for file in sorted(os.listdir(folder)) if program.startswith("test_") and os.path.isdir(folder) else []:
        if file.endswith("_test.cpp"):
            text = open(os.path.join(folder, file), encoding="utf-8").read()
            for literals in re.findall(r'\bTEST_CASE(?:_METHOD)?\((?:[\w:]+,)?\s*((?:"(?:[^"\\\n]|\\.)*"\s*)+)', text):
                names.append(ast.literal_eval("(" + literals + ")"))
    return names


def check_list(root, mutations):
    """Everything that is wrong with the list."""
    wrong, tests = [], {}
    for name, count in collections.Counter(m.name for m in mutations).items():
        if count > 1:
            wrong.append(f"[{name}]: {count} entries have this name")
    for m in mutations:
        where = f"line {m.line}: [{m.name}]"
        path = os.path.join(root, m.file)
        if not os.path.isfile(path):
            wrong.append(f"{where}: there is no file {m.file}")
            continue
        try:
            mutated(open(path, encoding="utf-8").read(), m)
        except ListError as error:
            wrong.append(str(error))
        names = tests.setdefault(m.program, names_of_tests(root, m.program))
        if not names:
            wrong.append(f"{where}: there is no test program {m.program}")
        elif not any(fnmatch.fnmatchcase(n.lower(), re.sub(r"[\[\]?]", "?", m.filter.lower())) for n in names):
            wrong.append(f"{where}: no test case of {m.program} is named '{m.filter}'")
    return wrong


# ---- the copy
def source_files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True)
    if listed.returncode == 0 and listed.stdout:
        return sorted({n for n in listed.stdout.decode().split("\0") if n and os.path.isfile(os.path.join(root, n))})
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in (".git", "build", "runs")]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(found)


def write_if_changed(path, data):
    if os.path.isfile(path) and open(path, "rb").read() == data:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:  # with the time of now: the build system sees the change
        file.write(data)


def refresh_copy(root, copy):
    files = source_files(root)
    for name in files:
        write_if_changed(os.path.join(copy, name), open(os.path.join(root, name), "rb").read())
    for folder, _, present in os.walk(copy):
        for name in present:
            if os.path.relpath(os.path.join(folder, name), copy) not in files:
                os.remove(os.path.join(folder, name))


# ---- building and testing
Outcome = collections.namedtuple("Outcome", "red how tests seconds")  # red: the program did not pass


class Tree:
    """A copy of the sources with its build."""

    def __init__(self, root, work, jobs):
        self.source, self.build, self.jobs = os.path.join(work, "source"), os.path.join(work, "build"), jobs
        refresh_copy(root, self.source)
        done = subprocess.run(["cmake", "-S", self.source, "-B", self.build, *FLAGS], capture_output=True, text=True)
        if done.returncode != 0:
            raise ListError("the copy cannot be configured:\n" + done.stdout[-4000:] + done.stderr[-4000:])

    def compile(self, program):
        """What the compiler said, or nothing if all went well."""
        done = subprocess.run(["cmake", "--build", self.build, "--target", program, "-j", str(self.jobs)],
                              capture_output=True, text=True)
        return "" if done.returncode == 0 else (done.stdout + done.stderr)[-6000:] or "no output"

    def test(self, mutation, limit):
        program = os.path.join(self.build, "bin", "tests", mutation.program)
        environment = {**os.environ, "BITGRAD_GEMM_COSTS": "/nonexistent/gemm_costs.txt", **mutation.environment}
        start = time.monotonic()
        with tempfile.TemporaryFile() as output:
            run = subprocess.Popen([program, mutation.filter, "-r", "xml", "--abort"], stdout=output, stderr=subprocess.DEVNULL,
                                   env=environment, cwd=self.build, start_new_session=True,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
            try:
                code = run.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                stop(run)
            output.seek(0)
            return outcome(code, output.read(OUTPUT_LIMIT).decode(errors="replace"), time.monotonic() - start)


def stop(run):
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def outcome(code, xml, seconds):
    """xml: of Catch2; a crash may have cut it short."""
    cases = re.split(r"<TestCase\b", xml)[1:]
    red = [c for c in cases if 'success="false"' in c or "</TestCase>" not in c]
    names = [unescaped(m.group(1)) for c in red if (m := re.match(r'[^>]*?\bname="([^"]*)"', c))]
    if code is None:
        return Outcome(True, "timed out", names, seconds)
    if code == 0:
        if not cases:
            return Outcome(True, "no test ran", [], seconds)
        return Outcome(False, "passed", [], seconds)
    if code < 0:
        return Outcome(True, "crashed (" + signal.Signals(-code).name + ")", names, seconds)
    fatal = re.search(r"<FatalErrorCondition[^>]*>\s*(SIG\w+)", xml)
    return Outcome(True, f"crashed ({fatal.group(1)})" if fatal else "failed", names, seconds)


def unescaped(text):
    for name, mark in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(name, mark)
    return text


def key_of(m):
    return hashlib.sha256(repr((m.file, m.old, m.new, m.program, m.filter, m.environment)).encode()).hexdigest()[:16]


def baselines(tree, mutations):
    """How long each test takes in the unbroken tree, where all must pass."""
    seconds = {}
    for program in sorted({m.program for m in mutations}):
        print(f"building {program}", flush=True)
        if said := tree.compile(program):
            raise ListError(f"{program} does not compile without any mutation:\n{said}")
    for m in mutations:
        test = (m.program, m.filter, tuple(sorted(m.environment.items())))
        if test in seconds:
            continue
        done = tree.test(m, 600)
        if done.red:
            raise ListError(f"without any mutation, {m.program} '{m.filter}': {done.how}: {'; '.join(done.tests)}")
        seconds[test] = done.seconds
    return {m.name: seconds[m.program, m.filter, tuple(sorted(m.environment.items()))] for m in mutations}


def run_one(tree, m, before):
    path = os.path.join(tree.source, m.file)
    text = open(path, encoding="utf-8").read()
    start = time.monotonic()
    write_if_changed(path, mutated(text, m).encode())
    try:
        said = tree.compile(m.program)
        compiled = time.monotonic() - start
        done = None if said else tree.test(m, max(LEAST_LIMIT, SLOWER * before))
    finally:
        write_if_changed(path, text.encode())
    result = dict(key=key_of(m), file=m.file, about=m.about, program=m.program, compile_seconds=round(compiled, 1))
    if done is None:
        return dict(result, verdict="does not compile", how=said, tests=[], test_seconds=0)
    return dict(result, verdict="killed" if done.red else "survived", how=done.how, tests=done.tests,
                test_seconds=round(done.seconds, 1))


def run_all(tree, mutations, results, store):
    before = baselines(tree, mutations)
    for i, m in enumerate(mutations, 1):
        result = results[m.name] = run_one(tree, m, before[m.name])
        store()
        how = result["how"].strip().splitlines()
        print(f"{i}/{len(mutations)} {m.name:40} {result['verdict']:16} {how[0] if how else ''}"
              f" ({result['compile_seconds']:.0f} + {result['test_seconds']:.0f} s)"
              f" {'; '.join(result['tests'][:2])}", flush=True)
        if result["verdict"] == "does not compile":
            print(result["how"], flush=True)


# ---- results
def markdown(mutations, results):
    lines = ["# Mutations", "",
             "Each line: one place of the code broken on purpose, and the test that transposed red. Written by "
             "`scripts/mutation_check.py --markdown`;", "the exact texts: `tests/cuda/mutations.txt`.", "",
             f"{len(mutations)} mutations, "
             f"{sum(results.get(m.name, {}).get('verdict') == 'killed' for m in mutations)} killed.", "",
             "| mutation | what is broken | file | red | test |", "|---|---|---|---|---|"]
    for m in mutations:
        r = results.get(m.name)
        red = "not run" if r is None else r["how"] if r["verdict"] == "killed" else r["verdict"]
        names = [m.filter] if r is None or not r["tests"] else r["tests"][:1]
        more = f" and {len(r['tests']) - 1} more" if r and len(r["tests"]) > 1 else ""
        cells = [m.name, m.about, f"`{m.file}`", red, f"{m.program}: {names[0]}{more}"]
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


# ---- the script's own test
SELF_CMAKE = """cmake_minimum_required(VERSION 3.25)
project(small CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
add_executable(test_small tests/small/small_test.cpp)
"""
SELF_SOURCE = """// TEST_CASE("one, two")
#include <cstdio>
#include <cstdlib>
static int two() { return 2; }
static const int unused = 5;
int main() {
  std::puts("<TestCase name=\\"one, two\\">");
  const bool good = two() == 2 && unused != 0;
  std::printf("success=\\"%s\\"</TestCase>\\n", good ? "true" : "false");
  return good ? 0 : 1;
}
"""
SELF_LIST = """# a comment
[ok/killed] another number
file: tests/small/small_test.cpp
-{ return 2; }
+{ return 3; }
test: A_VARIABLE=1 test_small "one*"
[ok/crashed] no return
file: tests/small/small_test.cpp
-{ return 2; }
+{ std::abort(); }
test: test_small "one, two"
[ok/slow] no end
file: tests/small/small_test.cpp
-static int two() { return 2; }
-static const
+static int two() { for (volatile int i = 0;; i = 1) {} }
+static const
test: test_small "one, two"
[bad/survivor] a number that nobody reads
file: tests/small/small_test.cpp
-= 5;
+= 6;
test: test_small "one, two"
[bad/text] no C++
file: tests/small/small_test.cpp
-= 5;
+= ;
test: test_small "one, two"
"""
SELF_WRONG = [("= 5;", "return", "occurs 2 times"), ("= 5;", "no such text", "occurs 0 times"),
              ("+= 6;", "+= 5;", "are equal"), ("test_small \"one, two\"", "test_small \"three\"", "is named 'three'"),
              ("test_small \"one, two\"", "test_large \"one\"", "no test program test_large"),
              ("small_test.cpp", "none.cpp", "no file tests/small/none.cpp"),
              ("[bad/survivor]", "[ok/killed]", "2 entries have this name"), ("file: ", "field: ", "expected [name]"),
              ("test: ", "# ", "no 'test:'"), ("test_small \"one, two\"", "test_small", "got 'test_small', expected")]


def expect(condition, what):
    if not condition:
        sys.exit("self-test: " + what)


def problems(root, text):
    try:
        return check_list(root, parse(text))
    except ListError as error:
        return [str(error)]


def self_test():
    global LEAST_LIMIT
    LEAST_LIMIT = 2
    with tempfile.TemporaryDirectory() as folder:
        root, work = os.path.join(folder, "root"), os.path.join(folder, "work")
        write_if_changed(os.path.join(root, "CMakeLists.txt"), SELF_CMAKE.encode())
        write_if_changed(os.path.join(root, "tests", "small", "small_test.cpp"), SELF_SOURCE.encode())
        expect(not problems(root, SELF_LIST), "; ".join(problems(root, SELF_LIST)))
        at = SELF_LIST.index("[bad/survivor]")
        for old, new, want in SELF_WRONG:
            wrong = problems(root, SELF_LIST[:at] + SELF_LIST[at:].replace(old, new, 1))
            expect(any(want in w for w in wrong), f"'{old}' -> '{new}': expected '{want}', got {wrong}")
        if shutil.which("cmake") is None or shutil.which("ninja") is None:
            print("self-test: the list is checked; nothing was built without cmake and ninja")
            return
        mutations, results = parse(SELF_LIST), {}
        run_all(Tree(root, work, 1), mutations, results, lambda: None)
        got = {name: (r["verdict"], r["how"] if r["verdict"] == "killed" else "") for name, r in results.items()}
        want = {"ok/killed": ("killed", "failed"), "ok/crashed": ("killed", "crashed (SIGABRT)"),
                "ok/slow": ("killed", "timed out"), "bad/survivor": ("survived", ""),
                "bad/text": ("does not compile", "")}
        expect(got == want, f"expected {want}, got {got}")
        expect(results["ok/killed"]["tests"] == ["one, two"], f"names: got {results['ok/killed']['tests']}")
        expect("5 mutations, 3 killed" in markdown(mutations, results), "markdown: the count is wrong")
        copy = open(os.path.join(work, "source", "tests", "small", "small_test.cpp")).read()
        expect(copy == SELF_SOURCE, "the copy was not restored")
    print("self-test: mutations that must die died, the survivor and the wrong entries were named")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="GLOB")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "mutation"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--markdown", metavar="FILE")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    mutations = parse(open(os.path.join(ROOT, LIST), encoding="utf-8").read())
    if wrong := check_list(ROOT, mutations):
        raise ListError("\n".join(wrong))
    chosen = [m for m in mutations if args.only is None or any(fnmatch.fnmatchcase(m.name, g) for g in args.only)]
    if args.list:
        return print("\n".join(f"{m.name:40} {m.about}" for m in chosen))
    if args.check:
        return print(f"{len(mutations)} mutations: each text occurs once, each test is there")
    path = os.path.join(args.work, "results.json")
    stored = json.load(open(path)) if os.path.isfile(path) else {}
    results = {m.name: stored[m.name] for m in mutations if stored.get(m.name, {}).get("key") == key_of(m)}

    def store():
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)

    if args.markdown:
        with open(args.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(mutations, results))
    else:
        run_all(Tree(ROOT, args.work, args.jobs), chosen, results, store)
    alive = [m.name for m in chosen if results.get(m.name, {}).get("verdict") != "killed"]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutations were killed" +
          (", not: " + ", ".join(alive) if alive else ""))
    sys.exit(1 if alive else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is stopped, the copy restored
    try:
        main()
    except ListError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
