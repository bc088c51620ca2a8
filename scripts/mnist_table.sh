#!/usr/bin/env bash
# The MNIST tables of docs/results/: trains and evaluates the packed weights in a fresh process. Interrupted runs are resumed.
#   BITGRAD_DATA=DIR scripts/mnist_table.sh short tfc "1 2 3"     # FINN nets: 200 epochs, rate halved every 8
#   BITGRAD_DATA=DIR scripts/mnist_table.sh published tfc "1"      # as the recipe: 1000 or 500 epochs, halved every 40
#   BITGRAD_DATA=DIR scripts/mnist_table.sh mlp "1 2 3"            # ways to quantize one MLP (configs/mnist_mlp_*)
#   scripts/mnist_table.sh table                                   # prints what runs/mnist_table holds
set -euo pipefail
cd "$(dirname "$0")/.."
bitgrad=${BITGRAD:-build/release/bin/bitgrad}
out=${OUT:-runs/mnist_table}

finished() { grep -q '"status": "finished"' "$1/summary.json" 2>/dev/null; }

run() {  # folder config [key=value ...]
  local folder=$out/$1 config=$2
  shift 2
  finished "$folder" && return
  if [ -e "$folder/last.safetensors" ]; then
    "$bitgrad" train --resume "$folder" -q
  else
    "$bitgrad" train "configs/$config.yaml" device.threads=1 "$@" -q --out "$folder"
  fi
}

run_finn() {  # schedule net weights seed
  local keys=()
  [ "$1" = short ] && keys=("train.stop=200 epochs" "schedule.every=8 epochs")
  run "$1_$2_$3_s$4" "mnist_$2_$3" "run.seed=$4" "${keys[@]}"
}

run_mlp() {  # seed
  local name
  for name in fp32 int8_int int8_fake int8_backward lsq_w4a4 lsq_w2a2 bop_w1a8 int8_masterless; do
    run "mlp_${name}_s$1" "mnist_mlp_$name" "run.seed=$1"
  done
  run "mlp_int8_backward_fp32_s$1" mnist_mlp_int8_backward "run.seed=$1" "quant.backward={gx: fp32, gw: fp32}"
}

table() {
  echo "| run | epochs | best % | last % | mean of last 10 % | best by a fresh bitgrad eval % | state |"
  echo "|---|---|---|---|---|---|---|"
  for folder in "$out"/*/; do
    finished "$folder" || continue
    local best state
    best=$("$bitgrad" eval "$folder/best.safetensors" --json | sed 's/.*"accuracy":\([0-9.]*\).*/\1/')
    state=$(sed -n 's/.*"state_hash": "\(.\{12\}\).*/\1/p' "$folder/summary.json")
    grep '"event":"eval"' "$folder/metrics.jsonl" | sed 's/.*"accuracy":\([0-9.]*\).*/\1/' |
      awk -v run="$(basename "$folder")" -v fresh="$best" -v state="$state" '
        {a[NR] = $1; if ($1 > best) best = $1}
        END {n = NR < 10 ? NR : 10; for (i = NR - n + 1; i <= NR; ++i) s += a[i]
             printf "| %s | %d | %.2f | %.2f | %.2f | %.2f | %s |\n", run, NR, best, a[NR], s / n, fresh, state}'
  done
}

case "${1:-} $#" in
  "table 1") table ;;
  "mlp 2") for seed in $2; do run_mlp "$seed"; done ;;
  "short 3" | "published 3") for seed in $3; do for weights in w1a1 w1a2 w2a2; do run_finn "$1" "$2" "$weights" "$seed"; done; done ;;
  *) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
