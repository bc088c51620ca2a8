#!/usr/bin/env python3
"""Style of a change: clang-format over all sources, clang-tidy over the changed lines, and the subjects of commits.

    scripts/check_style.py [--files N]     at most N files by clang-tidy (default 12, a minute on two cores); 0: all

What changed is counted from BITGRAD_BASE if that is set, else from the merge base with origin/main, else from the last
few commits; changes that are not committed belong to it. Everything that is left out is printed with its reason.

clang-format  all tracked *.cpp *.h *.cu *.cuh. Not *.inc: their rows are aligned by hand, or they are loops whose
              statement macros clang-format takes for expressions.
clang-tidy    the same files, as the preset dev compiles them (headers: as the closest source). It judges changed lines
              only, so that nobody mends what others wrote. The most recently changed files come first.
alone         the public headers that changed or include one that did, and the changed sources, at most ten times N of
              these, by the compiler of the preset dev, 0.8 s each: the presets that compile in batches do not notice an
              include that a neighbour has.
subjects      at most 72 characters, of commits that are younger than this script.

Exit codes: 0 clean, 1 something to mend, 77 a tool is missing (scripts/setup.sh --style installs all).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATTERNS = ["*.cpp", "*.h", "*.cu", "*.cuh"]
VERSION = "14"  # of clang: other versions lay out and warn differently
COMMITS = 8  # "the last few"
SUBJECT = 72


def say(text):
    print(f"check_style: {text}", flush=True)


def git(*arguments, check=True):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=check, capture_output=True, text=True).stdout.strip()


def tool(name):
    """The program of the version that the project uses, or None."""
    for program in (f"{name}-{VERSION}", name):
        if shutil.which(program):
            version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", version):
                return program
    return None


def in_parallel(call, items):
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(call, items))


def check_format(program):
    files = git("ls-files", *PATTERNS).splitlines()
    files = [file for file in files if (ROOT / file).exists()]
    parts = [files[i:i + 100] for i in range(0, len(files), 100)]

    def check(part):
        return subprocess.run([program, "--dry-run", "-Werror", *part], cwd=ROOT, capture_output=True, text=True).stderr

    text = "".join(in_parallel(check, parts))
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", text, re.M)))
    for file in wrong:
        say(f"{file}: not formatted. Run {program} -i {file}")
    say(f"{program}: {len(files)} files, {len(wrong)} to mend")
    return not wrong and not text


def base_commit():
    """The commit that changes are counted from, and why this one."""
    given = os.environ.get("BITGRAD_BASE")
    if given:
        return git("merge-base", given, "HEAD"), f"BITGRAD_BASE={given}"
    head = git("rev-parse", "HEAD")
    fork = git("merge-base", "origin/main", "HEAD", check=False)
    if fork and fork != head:
        return fork, "the merge base with origin/main"
    history = git("rev-list", "--first-parent", f"--max-count={COMMITS + 1}", "HEAD").splitlines()
    return history[-1], f"the last {len(history) - 1} commits; BITGRAD_BASE sets another base"


def changed_lines(base):
    """{file: [[first, last], ...]} of lines that are new since `base`, the most recently changed files first."""
    recent = git("diff", "--name-only", "HEAD", "--", *PATTERNS).splitlines()
    recent += git("log", "--format=", "--name-only", f"{base}..HEAD", "--", *PATTERNS).splitlines()
    lines = {}
    file = None
    for line in git("diff", "-U0", "--no-ext-diff", "--diff-filter=d", "--src-prefix=a/", "--dst-prefix=b/", base, "--",
                    *PATTERNS).splitlines():
        if line.startswith("+++ b/"):
            file = line[len("+++ b/"):]
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            if count > 0:
                lines.setdefault(file, []).append([first, first + count - 1])
    order = {file: i for i, file in reversed(list(enumerate(recent)))}
    return dict(sorted(lines.items(), key=lambda entry: order.get(entry[0], len(recent))))


def make_headers(folder):
    """Makes the headers that a build generates from sources, and a configuration does not."""
    targets = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], check=True, capture_output=True, text=True)
    headers = [line.split(":")[0] for line in targets.stdout.splitlines() if line.split(":")[0].endswith("_generated.h")]
    if headers:
        subprocess.run(["ninja", "-C", folder, *headers], check=True, stdout=subprocess.DEVNULL)


def compiled_sources():
    """Configures the preset dev, in seconds; returns its folder and {source: (folder, command)} that it compiles."""
    subprocess.run(["cmake", "--preset", "dev"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    folder = ROOT / "build/dev"
    make_headers(folder)
    entries = json.loads((folder / "compile_commands.json").read_text())
    return folder, {os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT):
                    (entry["directory"], entry["command"]) for entry in entries}


def left_out(check, why, files):
    if files:
        say(f"{check} leaves out {len(files)} files ({why}): {' '.join(files)}")


def reached_headers(changed):
    """The public headers of `changed` and those that include one of its files, by any chain."""
    headers = [header for header in git("-C", "include", "ls-files", "*.h").splitlines()
               if (ROOT / "include" / header).exists()]
    includes = {header: set(re.findall(r'^#include "(bitgrad/[^"]+)"', (ROOT / "include" / header).read_text(), re.M))
                for header in headers}
    prefix = "include/"
    reached = [file[len(prefix):] for file in changed if file.startswith(prefix)]
    for part in reached:  # grows
        reached += [user for user, used in includes.items() if part in used and user not in reached]
    return [part for part in reached if part in includes]


def check_alone(base, limit):
    compiled = compiled_sources()[1]
    changed = git("diff", "--name-only", "--diff-filter=d", base, "--", *PATTERNS, "*.inc").splitlines()
    headers = [f"build/dev/tests/headers/{header}.cpp" for header in reached_headers(changed)]
    left_out("alone", "the preset dev does not compile them", [file for file in headers if file not in compiled])
    sources = [file for file in changed_lines(base) if file in compiled]
    sources += [file for file in changed if file in compiled and file not in sources]  # lost lines alone
    limit = 10 * limit if limit else len(sources)
    left_out("alone", f"only {limit} are compiled; --files 0 compiles all", sources[limit:])
    checked = [file for file in headers if file in compiled] + sources[:limit]

    def compile_alone(file):
        folder, command = compiled[file]
        return subprocess.run(f"{command} -fsyntax-only -o /dev/null", cwd=folder, shell=True, capture_output=True,
                              text=True, env={**os.environ, "CCACHE_DISABLE": "1"})

    wrong = [result.stderr for result in in_parallel(compile_alone, checked) if result.returncode != 0]
    for text in wrong:
        print(text, flush=True)
    say(f"alone: {len(checked)} sources and headers, {len(wrong)} to mend")
    return not wrong


def check_tidy(program, base, limit):
    lines = changed_lines(base)
    parts = git("diff", "--name-only", "--diff-filter=d", base, "--", "*.inc").splitlines()
    left_out("clang-tidy", "parts of other files", parts)
    if not lines:
        say(f"{program}: no source changed")
        return True
    folder, compiled = compiled_sources()
    files = [file for file in lines if file.endswith((".h", ".cuh")) or file in compiled]
    checked = files[:limit] if limit else files
    left_out("clang-tidy", "the preset dev does not compile them", [file for file in lines if file not in files])
    left_out("clang-tidy", f"only {limit} are checked; --files 0 checks all", files[len(checked):])

    def check(file):
        judged = json.dumps([{"name": file, "lines": lines[file]}])
        return subprocess.run([program, "-p", folder, "--quiet", "--warnings-as-errors=*", f"--line-filter={judged}",
                               file], cwd=ROOT, capture_output=True, text=True)

    wrong, alone = [], []
    for file, result in zip(checked, in_parallel(check, checked)):
        if result.returncode != 0 and file not in compiled and "clang-diagnostic-error" in result.stdout:
            alone.append(file)
        elif result.returncode != 0:
            wrong.append(file)
            print(result.stdout or result.stderr, flush=True)
    left_out("clang-tidy", "headers that do not compile alone", alone)
    say(f"{program}: {len(checked) - len(alone)} changed files, {len(wrong)} to mend")
    return not wrong


def check_subjects(base):
    born = git("log", "--diff-filter=A", "--format=%H", "--", "scripts/check_style.py").splitlines()
    since = [f"^{born[-1]}"] if born else []
    log = git("log", "--no-merges", "--format=%h %s", f"{base}..HEAD", *since).splitlines()
    long = [entry for entry in log if len(entry.split(" ", 1)[1]) > SUBJECT]
    for entry in long:
        say(f"{entry}: the subject has more than {SUBJECT} characters")
    say(f"subjects: {len(log)} commits, {len(long)} to mend")
    return not long


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=12, metavar="N", help="files that clang-tidy reads; 0: all")
    options = parser.parse_args()
    if not shutil.which("git") or not git("rev-parse", "--git-dir", check=False):
        say("this folder is no git repository: nothing says what changed")
        return 77
    layout, tidy = tool("clang-format"), tool("clang-tidy")
    for name, program in (("clang-format", layout), ("clang-tidy", tidy)):
        if program is None:
            say(f"{name} {VERSION} was not found. Install it: scripts/setup.sh --style")
    if layout is None or tidy is None:
        return 77
    base, why = base_commit()
    say(f"changes since {git('log', '-1', '--format=%h %s', base)} ({why})")
    good = [check_format(layout), check_subjects(base), check_alone(base, options.files)]
    good.append(check_tidy(tidy, base, options.files))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
