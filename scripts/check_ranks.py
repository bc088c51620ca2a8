#!/usr/bin/env python3
"""Ends ranks of `bitgrad train` at random: checks that all end, and that a checkpoint always loads.

    scripts/check_ranks.py BITGRAD [--times 200] [--ranks 3] [--seed 1] [--mpirun mpirun]
    scripts/two_hosts.sh 1gbit scripts/check_ranks.py BITGRAD [--times 200] [--seed 1]

Each time one rank below mpirun gets SIGKILL, SIGSTOP or SIGTERM at a random moment of a run that saves after every few
steps, and the run goes on from its checkpoint until the next one. Prints the events and the seconds that they took.
Below two_hosts.sh there is one rank on each host, and in half of the events the hosts are cut from each other: what one
sends is lost, without a word. mpirun may hang then, and is killed; the ranks must end by themselves.
Needs mpirun, of Open MPI or MPICH; root, and containers without ptrace, are provided for.
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
ENDS = {"kill": (signal.SIGKILL, 10), "stop": (signal.SIGSTOP, LIMIT + 12), "terminate": (signal.SIGTERM, 20),  # seconds
        "cut": (None, LIMIT + 12)}
HOSTS = os.environ.get("HOSTS")  # of two_hosts.sh


def children(process):
    """The ranks below mpirun, of which that of MPICH has a process between."""
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        for child in [int(word) for word in task.read_text().split()]:
            try:
                rank = pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "bitgrad"
            except OSError:
                continue
            found += [child] if rank else children(child)
    return sorted(found)


def on_hosts():
    """The processes of both hosts, with their programs."""
    found = {}
    for side in "ab":
        for word in subprocess.run(["ip", "netns", "pids", HOSTS + side], capture_output=True, text=True).stdout.split():
            try:
                found[int(word)] = pathlib.Path(f"/proc/{word}/comm").read_text().strip()
            except OSError:
                pass
    return found


def ranks_of(run):
    return sorted(p for p, name in on_hosts().items() if name == "bitgrad") if HOSTS else children(run.pid)


def set_cut(cut):
    for side, other in (("a", os.environ["HOST_B"]), ("b", os.environ["HOST_A"])):
        entry = [other, "dev", os.environ["HOST_CARD"]]
        how = ["replace", *entry, "lladdr", "02:00:00:00:00:01", "nud", "permanent"] if cut else ["del", *entry]  # nobody's
        subprocess.run(["ip", "-n", HOSTS + side, "neigh", *how], check=True)


def wait_for_cut_ranks(run, start):
    """Seconds until the ranks have ended, and what they said. Ends what remains."""
    while ranks_of(run) and time.monotonic() - start < 60:
        time.sleep(0.05)
    took = time.monotonic() - start
    time.sleep(0.5)  # mpirun prints their last lines
    for process in on_hosts():
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    output, _ = run.communicate(timeout=60)
    set_cut(False)
    return took, output


def end_once(arguments, folder, draws):
    run = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = folder / "run" / "metrics.jsonl"
    before = log.stat().st_size if log.exists() else 0
    while run.poll() is None and not (log.exists() and log.stat().st_size > before):
        time.sleep(0.01)
    time.sleep(draws.uniform(0, 1))
    name = draws.choice([name for name in ENDS if name != "cut"])
    if HOSTS and draws.random() < 0.5:
        name = "cut"
    ranks = ranks_of(run)
    start = time.monotonic()
    if name == "cut":
        set_cut(True)
        took, output = wait_for_cut_ranks(run, start)
        return name, took, "-", output
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
    parser.add_argument("--mpirun", default="mpirun", help="the launcher of the MPI that BITGRAD's module was built for")
    options = parser.parse_args()
    if shutil.which(options.mpirun) is None:
        print(f"check_ranks: skipped: no {options.mpirun}")
        return 77
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_btl_vader_single_copy_mechanism="none")
    draws = random.Random(options.seed)
    seconds, codes = collections.defaultdict(list), collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "net.yaml").write_text(NET)
        bitgrad = str(pathlib.Path(options.bitgrad).resolve())
        version = subprocess.run([options.mpirun, "--version"], capture_output=True, text=True).stdout
        start = [options.mpirun, "--bind-to", "none", "-n", str(options.ranks)]
        if "HYDRA" not in version:
            start.insert(1, "--oversubscribe")
        if HOSTS:
            start = [os.environ["HOST_MPIRUN"], "--wdir", place]
        train = [*start, bitgrad, "train", "net.yaml", "--out", "run", "--resume", "auto", "--rank-timeout", str(LIMIT),
                 "device.threads=1"]
        for n in range(options.times):
            name, took, code, output = end_once(train, folder, draws)
            seconds[name].append(took)
            codes[name, code] += 1
            late = took > ENDS[name][1]
            loaded = subprocess.run([bitgrad, "inspect", "run/last.safetensors"], cwd=folder, capture_output=True)
            unsaid = name == "cut" and "no answer from rank" not in output
            if loaded.returncode != 0 or late or unsaid or (name == "terminate" and code != 75):
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
