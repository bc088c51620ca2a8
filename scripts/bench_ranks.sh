#!/usr/bin/env bash
# A step of training on two ranks with a slow network between them, in turns with PyTorch's DistributedDataParallel over
# gloo: bench_ranks and scripts/bench_ranks.py with one rank each on the hosts of scripts/two_hosts.sh, whose programs it
# needs. One computing thread a rank on both sides.
#
#   scripts/bench_ranks.sh [--turns 5] [--links "1gbit 10gbit"] [--weights "int4"] [--layers 1] [--size 4096] [--samples 4]
#                          [--steps 3] [--out FILE]
#
# --samples: of a microbatch; each rank has two a step. --steps: those measured in a turn, of which the median counts,
# after two that do not. --out: the table, and with the ending .jsonl instead of its own the rows of all turns.
#
# BITGRAD_PYTHON: a Python with torch (python3). BITGRAD_BENCH: folder of bench_ranks (build/release/bin). Without these
# it prints why it was skipped, and exits with 77.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${BITGRAD_BENCH:-$root/build/release/bin}/bench_ranks
python=${BITGRAD_PYTHON:-python3}
turns=5 links="1gbit 10gbit" weights=int4 layers=1 size=4096 samples=4 steps=3 out=''
wires="exact bf16 int8" # of gradients
arguments=("$@")
while [ $# -gt 0 ]; do
  case "$1" in
    --turns | --links | --weights | --layers | --size | --samples | --steps | --out)
      [ $# -gt 1 ] || { echo "bench_ranks.sh: $1: expected a value" >&2; exit 2; }
      declare "${1#--}=$2"
      shift 2
      ;;
    *)
      echo "bench_ranks.sh: got '$1', expected --turns, --links, --weights, --layers, --size, --samples, --steps or --out" >&2
      exit 2
      ;;
  esac
done

shape=(--layers "$layers" --size "$size" --samples "$samples" --repeat "$steps")

[ -n "${HOSTS:-}" ] || exec bash "$root/scripts/two_hosts.sh" "${links%% *}" bash "$0" "${arguments[@]}"
skip() { echo "skipped: $*"; exit 77; }
[ -x "$program" ] || skip "$program is not built"
"$python" -c 'import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())' 2> /dev/null ||
  skip "$python has no torch with gloo: BITGRAD_PYTHON names one that has"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
set_rate() {
  for side in a b; do tc -n "$HOSTS$side" qdisc replace dev "$HOST_CARD" root tbf rate "$1" burst 1mb latency 50ms; done
}

ours() { # link weight wire
  local options=()
  [ "$3" = exact ] || options=(--wire "$3")
  OMP_NUM_THREADS=1 timeout 600 "$HOST_MPIRUN" "$program" "${shape[@]}" --weight "$2" --threads 1 --interface "$HOST_CARD" \
    --json "$scratch/row.json" "${options[@]}" > "$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
  keep_row "$1" "$2 $3"
}

# glibc keeps its memory for the rival: steps took 1.5 times as long where each gradient was mapped anew.
rival_rank() { # rank side
  ip netns exec "$HOSTS$2" env GLOO_SOCKET_IFNAME="$HOST_CARD" OMP_NUM_THREADS=1 \
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456 \
    timeout 600 "$python" "$root/scripts/bench_ranks.py" ddp "$1" 2 "$HOST_A" "$HOST_CARD" "${shape[@]}"
}
rival() { # link
  rival_rank 1 b > "$scratch/log" 2>&1 &
  if ! rival_rank 0 a > "$scratch/row.json" 2>> "$scratch/log" || ! wait $!; then
    cat "$scratch/log" >&2
    exit 1
  fi
  keep_row "$1" ddp
}

keep_row() { # link who
  "$python" - "$scratch/row.json" "$1" "$2" >> "$scratch/rows" << 'EOF'
import json, sys
report = json.load(open(sys.argv[1]))
print(json.dumps(dict(link=sys.argv[2], who=sys.argv[3], **(report["rows"][0] if "rows" in report else report))))
EOF
  tail -1 "$scratch/rows" >&2
}

for link in $links; do
  set_rate "$link"
  for ((turn = 0; turn < turns; ++turn)); do
    for weight in $weights; do
      for wire in $wires; do ours "$link" "$weight" "$wire"; done
    done
    rival "$link"
  done
done
"$python" "$root/scripts/bench_ranks.py" table "$scratch/rows" | tee "$scratch/table"
if [ -n "$out" ]; then
  cp "$scratch/table" "$out"
  cp "$scratch/rows" "${out%.*}.jsonl"
fi
