#!/usr/bin/env bash
# The MNIST table of docs/results/: trains the FINN nets and evaluates the packed weights in a fresh process. Interrupted runs are resumed.
#   BITGRAD_DATA=DIR scripts/mnist_table.sh short tfc "1 2 3"     # 200 epochs, rate halved every 8
#   BITGRAD_DATA=DIR scripts/mnist_table.sh published tfc "1"      # as the recipe: 1000 or 500 epochs, halved every 40
#   scripts/mnist_table.sh table                                   # prints what runs/mnist_table holds
set -euo pipefail
cd "$(dirname "$0")/.."
bitgrad=${BITGRAD:-build/release/bin/bitgrad}
out=${OUT:-runs/mnist_table}

finished() { grep -q '"status": "finished"' "$1/summary.json" 2>/dev/null; }

run() {  # schedule net weights seed
  local folder=$out/$1_$2_$3_s$4 keys=()
  [ "$1" = short ] && keys=("train.stop=200 epochs" "schedule.every=8 epochs")
  finished "$folder" && return
  if [ -e "$folder/last.safetensors" ]; then
    "$bitgrad" train --resume "$folder" -q
  else
    "$bitgrad" train "configs/mnist_$2_$3.yaml" "run.seed=$4" device.threads=1 "${keys[@]}" -q --out "$folder"
  fi
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

if [ "${1:-}" = table ]; then
  table
elif [ $# -eq 3 ]; then
  for seed in $3; do for weights in w1a1 w1a2 w2a2; do run "$1" "$2" "$weights" "$seed"; done; done
else
  sed -n '2,6p' "$0" >&2
  exit 2
fi
