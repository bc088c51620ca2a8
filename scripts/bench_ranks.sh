#!/usr/bin/env bash
# A step of training on two ranks with a slow network between them, in turns with PyTorch's DistributedDataParallel over
# gloo: bench_ranks and scripts/bench_ranks.py with one rank each in two network namespaces, joined by a pair of virtual
# network cards whose rate `tc` limits. One computing thread a rank on both sides.
#
#   scripts/bench_ranks.sh [--turns 5] [--links "1gbit 10gbit"] [--weights "int4"] [--layers 1] [--size 4096] [--samples 4]
#                          [--steps 3] [--out FILE]
#
# --samples: of a microbatch; each rank has two a step. --steps: those measured in a turn, of which the median counts,
# after two that do not. --out: the table, and with the ending .jsonl instead of its own the rows of all turns. Needs
# root, and the programs ip, tc, unshare and mpirun (Open MPI 4); otherwise, and where namespaces are not allowed, it
# prints why and exits with 77.
#
# BITGRAD_PYTHON: a Python with torch (python3). BITGRAD_BENCH: folder of bench_ranks (build/release/bin).
# Nothing outside the namespaces is changed, and they are removed at the end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${BITGRAD_BENCH:-$root/build/release/bin}/bench_ranks
python=${BITGRAD_PYTHON:-python3}
turns=5 links="1gbit 10gbit" weights=int4 layers=1 size=4096 samples=4 steps=3 out=''
wires="exact bf16 int8" # of gradients
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

skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root for network namespaces"
for tool in ip tc unshare mpirun; do
  command -v "$tool" > /dev/null || skip "$tool is not installed"
done
[ -x "$program" ] || skip "$program is not built"
"$python" -c 'import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())' 2> /dev/null ||
  skip "$python has no torch with gloo: BITGRAD_PYTHON names one that has"

scratch=$(mktemp -d)
space=bitgrad$$ # namespaces ${space}a and ${space}b, each with a card
card=wire
clean() {
  for side in a b; do
    # shellcheck disable=SC2046 # a list
    kill -9 $(ip netns pids "$space$side" 2> /dev/null) 2> /dev/null || true
    ip netns del "$space$side" 2> /dev/null || true
  done
  rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM

address() { [ "$1" = a ] && echo 10.77.0.1 || echo 10.77.0.2; }
make_spaces() {
  ip netns add "${space}a" && ip netns add "${space}b" &&
    ip link add "$card" netns "${space}a" type veth peer name "$card" netns "${space}b" || return
  for side in a b; do
    ip -n "$space$side" address add "$(address $side)/24" dev "$card" && ip -n "$space$side" link set lo up &&
      ip -n "$space$side" link set "$card" up || return
  done
}
set_rate() {
  for side in a b; do tc -n "$space$side" qdisc replace dev "$card" root tbf rate "$1" burst 1mb latency 50ms; done
}
make_spaces 2> "$scratch/error" || skip "no network namespaces here: $(tail -1 "$scratch/error")"
set_rate 1gbit 2> "$scratch/error" || skip "tc limits no rate here: $(tail -1 "$scratch/error")"

# mpirun starts the rank of the other host by this in place of ssh. A host name for each, so that they are two hosts.
cat > "$scratch/start" << EOF
#!/bin/sh
host=\$1
shift
exec ip netns exec ${space}b unshare --uts sh -c 'hostname "\$0" && exec sh -c "\$1"' rank1 "\$*"
EOF
chmod +x "$scratch/start"

ours() { # link weight wire
  local options=()
  [ "$3" = exact ] || options=(--wire "$3")
  TMPDIR=$scratch ip netns exec "${space}a" unshare --uts sh -c 'hostname rank0 && exec "$@"' sh \
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 \
    OMPI_MCA_btl_tcp_if_include="$card" OMPI_MCA_oob_tcp_if_include="$card" \
    OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent="$scratch/start" OMP_NUM_THREADS=1 \
    timeout 600 mpirun --host "$(address a):1,$(address b):1" -np 2 --map-by node --bind-to none \
    "$program" "${shape[@]}" --weight "$2" --threads 1 --interface "$card" --json "$scratch/row.json" "${options[@]}" > "$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
  keep_row "$1" "$2 $3"
}

# glibc keeps its memory for the rival: steps took 1.5 times as long where each gradient was mapped anew.
rival_rank() { # rank side
  ip netns exec "$space$2" env GLOO_SOCKET_IFNAME="$card" OMP_NUM_THREADS=1 \
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456 \
    timeout 600 "$python" "$root/scripts/bench_ranks.py" ddp "$1" 2 "$(address a)" "$card" "${shape[@]}"
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
