"""What the scripts that run beside PyTorch share: processes of its variants with an allocator, and rows of bench_step."""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH_STEP = os.path.join(HERE, "..", "build", "release", "bin", "bench_step")
# glibc: no mmap for each large tensor, nothing given back to the kernel.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_TOP_PAD_": "268435456"}
JEMALLOC = {"MALLOC_CONF": "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,metadata_thp:auto"}


def find_jemalloc():
    return next(iter(sorted(glob.glob("/usr/lib/*/libjemalloc.so*"))), None)


def find_compiler():
    """torch.compile makes C++ of a model."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None


def torch_row(script, cell):
    """The JSON line of `script --cell CELL` in a process of its own; {"error": ...}: a refusal is a result too."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(cell["threads"]), MKL_NUM_THREADS=str(cell["threads"]))
    if cell["malloc"] == "keep":
        environment.update(KEEP)
    elif cell["malloc"] == "jemalloc":
        environment.update(JEMALLOC, LD_PRELOAD=find_jemalloc())
    python = os.environ.get("BITGRAD_TORCH_PYTHON", sys.executable)
    result = subprocess.run([python, os.path.abspath(script), "--cell", json.dumps(cell)], env=environment,
                            capture_output=True, text=True, timeout=1800)
    if result.returncode != 0:
        return dict(error=(result.stderr.strip().splitlines() or ["no message"])[-1][:300])
    return json.loads(result.stdout.strip().splitlines()[-1])


def bench_step_row(program, arguments):
    """The one row of `bench_step ARGUMENTS`; ends the script where that fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "row.json")
        command = [program] + arguments + ["--json", path]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{os.path.basename(sys.argv[0])}: {' '.join(command)}: {result.stderr.strip()}")
        with open(path) as f:
            return json.load(f)["rows"][0]


def best_of(script, cells, title):
    """Runs each cell once; the fastest row, with its cell, and all rows. Ends the script with 77 where there is no torch."""
    rows = []
    for cell, variant in cells:
        rows.append(dict(cell=cell, **torch_row(script, cell)))
        print(*title, variant, rows[-1].get("ms", rows[-1].get("error")), file=sys.stderr, flush=True)
    good = [r for r in rows if "ms" in r]
    why = rows[0].get("error", "")
    if not good and why.startswith(("ImportError", "ModuleNotFoundError")):
        print("skipped: no torch: " + why)
        sys.exit(77)
    if not good:
        sys.exit(f"{os.path.splitext(os.path.basename(script))[0]}: no variant of PyTorch ran. Does BITGRAD_TORCH_PYTHON name a "
                 "Python with torch?")
    return min(good, key=lambda r: r["ms"]), rows


def add_arguments(p, rounds, steps):
    """Of a script that runs beside PyTorch."""
    p.add_argument("--cell", help=argparse.SUPPRESS)
    p.add_argument("--bench", default=BENCH_STEP)
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--steps", type=int, default=steps, help="of a process; its median counts")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both sides; cuda: our steps as recorded graphs, "
                   "PyTorch's fp32 products with TF32, no memory of ours")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--json", help="writes the results to this file")


def report_text(report):
    """JSON of a list or of members with lists: a line for each row."""
    if isinstance(report, list):
        rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in report)
        return f"[\n  {rows}\n ]" if report else "[]"
    if isinstance(report, dict):
        return "{\n " + ",\n ".join(f"{json.dumps(k)}: {report_text(v)}" for k, v in report.items()) + "\n}"
    return json.dumps(report)


def report_nets(a, p, known, compare):
    """compare(a, net) of each net of --net, written to --json."""
    nets = a.net.split(",")
    if any(n not in known for n in nets):
        p.error("--net: expected a list of " + ", ".join(known))
    report = [compare(a, net) for net in nets]
    if a.json:
        with open(a.json, "w") as f:
            f.write(report_text(report) + "\n")


def prepare(torch, cell):
    """Device, threads and seed of a variant in its process; the clock of its steps, in seconds."""
    torch.set_num_threads(cell["threads"])
    torch.manual_seed(1)
    if cell["device"] == "cpu":
        return time.process_time if cell["threads"] == 1 else time.perf_counter
    if not torch.cuda.is_available():
        raise ImportError("torch sees no CUDA device")
    torch.set_default_device("cuda")
    torch.set_float32_matmul_precision("high")

    def clock():
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def peak_bytes(torch, cell):
    return status_bytes("VmHWM") if cell["device"] == "cpu" else torch.cuda.max_memory_allocated()


def device_arguments(a):
    """Of bench_step."""
    return ["--device", "cuda", "--recorded"] if a.device == "cuda" else []


def status_bytes(key):
    """Of /proc/self/status: VmRSS, VmHWM."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))
