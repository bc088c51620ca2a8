#!/usr/bin/env python3
"""Ends ranks of `bitgrad train` at random: checks that all end, and that a checkpoint always loads.

    scripts/check_ranks.py BITGRAD [--times 200] [--ranks 3] [--seed 1]

Each time one rank below mpirun gets SIGKILL, SIGSTOP or SIGTERM at a random moment of a run that saves after every few
steps, and the run goes on from its checkpoint until the next one. Prints the events and the seconds that they took.
Needs mpirun; root, and containers without ptrace, are provided for.
"""
import argparse, collections, os, pathlib, random, shutil, signal, subprocess, sys, tempfile, time

NET = """version: 1
run: {name: net, seed: 2}
data:
  train: {format: digits, size: 400}
  test: {format: digits, size: 100}
model: {layers: [{linear: {out: 64}}, {batch_norm: {}}, {relu: {}}, {linear: {out: 10}}]}
quant: {recipe: w4a4}
batch: {global: 24, micro: 4}
optim: {name: adam, lr: 0.005}
train: {stop: 1000000 steps, eval: {every: 50 steps}}
log: {every: 5 steps, report: false}
checkpoint: {every: 3 steps}
"""
LIMIT = 4  # --rank-timeout, in seconds
ENDS = {"kill": (signal.SIGKILL, 10), "stop": (signal.SIGSTOP, LIMIT + 12), "terminate": (signal.SIGTERM, 20)}  # seconds


def children(process):
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        found += [int(word) for word in task.read_text().split()]
    return sorted(found)


def end_once(arguments, folder, draws):
    run = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = folder / "run" / "metrics.jsonl"
    before = log.stat().st_size if log.exists() else 0
    while run.poll() is None and not (log.exists() and log.stat().st_size > before):
        time.sleep(0.01)
    time.sleep(draws.uniform(0, 1))
    name = draws.choice(list(ENDS))
    ranks = children(run.pid)
    start = time.monotonic()
    if run.poll() is None and ranks:
        os.kill(draws.choice(ranks), ENDS[name][0])
    try:
        output, _ = run.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        for process in [*ranks, run.pid]:
            os.kill(process, signal.SIGKILL)
        sys.exit(f"check_ranks: {name}: the run did not end in 60 s")
    return name, time.monotonic() - start, run.returncode, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bitgrad")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("check_ranks: skipped: no mpirun")
        return 77
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_btl_vader_single_copy_mechanism="none")
    draws = random.Random(options.seed)
    seconds, codes = collections.defaultdict(list), collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "net.yaml").write_text(NET)
        bitgrad = str(pathlib.Path(options.bitgrad).resolve())
        train = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks), bitgrad, "train", "net.yaml",
                 "--out", "run", "--resume", "auto", "--rank-timeout", str(LIMIT), "device.threads=1"]
        for n in range(options.times):
            name, took, code, output = end_once(train, folder, draws)
            seconds[name].append(took)
            codes[name, code] += 1
            late = took > ENDS[name][1]
            loaded = subprocess.run([bitgrad, "inspect", "run/last.safetensors"], cwd=folder, capture_output=True)
            if loaded.returncode != 0 or late or (name == "terminate" and code != 75):
                print(output)
                print(loaded.stderr.decode())
                sys.exit(f"check_ranks: event {n}, {name}: code {code} after {took:.1f} s, "
                         f"the checkpoint {'loads' if loaded.returncode == 0 else 'does not load'}")
            print(f"{n}: {name}: {took:.1f} s, code {code}", flush=True)
    for name, all_of in sorted(seconds.items()):
        all_of.sort()
        print(f"{name}: {len(all_of)} times, median {all_of[len(all_of) // 2]:.1f} s, most {all_of[-1]:.1f} s, codes",
              {code: count for (event, code), count in sorted(codes.items()) if event == name})
    return 0


if __name__ == "__main__":
    sys.exit(main())
