#!/usr/bin/env bash
# The table of docs/results/qat.md: one float run a seed, quantized after training (PTQ) and by training on (QAT), with one recipe of training for all.
#   BITGRAD_DATA=DIR scripts/qat_table.sh run "1 2 3" ["int8wo int4wo 8da4w w1a1"]   # finished runs are kept, interrupted ones resumed
#   BITGRAD_DATA=DIR scripts/qat_table.sh ptq "1 2 3" ["int8wo w8a8"]                # the float runs and the PTQ columns alone
#   BITGRAD_DATA=DIR scripts/qat_table.sh budget "1 2 3" "int3wo int2wo"             # bits of each layer against the same bits everywhere
#   scripts/qat_table.sh table                                                       # prints what runs/qat_table holds
set -euo pipefail
cd "$(dirname "$0")/.."
bitgrad=${BITGRAD:-build/release/bin/bitgrad}
out=${OUT:-runs/qat_table}
epochs=${EPOCHS:-20}
recipes="int8wo int4wo int4wo_symmetric 8da4w w8a8 w4a8 w4a4 ternary_int8 nf4wo int3wo int2wo ternary_wo binary_wo w2a2 w1a2 w1a1"

finished() { grep -q '"status": "finished"' "$1/summary.json" 2>/dev/null; }

run() {  # folder [key=value ...]
  local folder=$out/$1
  shift
  finished "$folder" && return
  if [ -e "$folder/last.safetensors" ]; then
    "$bitgrad" train --resume "$folder" -q
  else
    "$bitgrad" train configs/mnist_mlp_qat.yaml device.threads=1 "$@" -q --out "$folder"
  fi
}

accuracy() { "$bitgrad" eval "$1" --json | sed 's/.*"accuracy":\([0-9.]*\).*/\1/'; }

ptq_runs() {  # seed recipes
  local start=$out/float_s$1 recipe
  run "float_s$1" "run.seed=$1" quant.recipe=none
  for recipe in $2; do
    [ -e "$out/ptq_${recipe}_s$1.safetensors" ] ||
      "$bitgrad" quantize "$start" -o "$out/ptq_${recipe}_s$1.safetensors" --recipe "$recipe" device.threads=1 >"$out/ptq_${recipe}_s$1.txt"
    echo "${recipe}_s$1: $(grep -E '^(after|batch norm)' "$out/ptq_${recipe}_s$1.txt" | sed 's/.*accuracy \([0-9.]*\) %.*/\1/' | tr '\n' ' ')(renewed, kept)"
  done
}

seed_runs() {  # seed recipes
  local start=$out/float_s$1 recipe
  ptq_runs "$1" "$2"
  # The float run, trained on as the others are: what they are compared with.
  run "fp32_s$1" "run.seed=$1" "model.init_from=$PWD/$start" quant.recipe=none "train.stop=$epochs epochs"
  for recipe in $2; do
    run "${recipe}_s$1" "run.seed=$1" "model.init_from=$PWD/$start" "quant.recipe=$recipe" "train.stop=$epochs epochs"
  done
}

weight_bytes() { "$bitgrad" inspect "$1" | sed -n 's/^weights: \([0-9]*\) bytes$/\1/p'; }

budget_runs() {  # seed uniform recipes
  local start=$out/float_s$1 recipe bytes
  for recipe in $2; do
    bytes=$(weight_bytes "$out/${recipe}_s$1")
    run "budget_${recipe}_s$1" "run.seed=$1" "model.init_from=$PWD/$start" "~quant.recipe" "quant.budget=$bytes" "train.stop=$epochs epochs"
  done
}

table() {
  echo "| run | PTQ % | best % | last % | state |"
  echo "|---|---|---|---|---|"
  for folder in "$out"/*/; do
    finished "$folder" || continue
    local name ptq=-
    name=$(basename "$folder")
    [ -e "$out/ptq_$name.safetensors" ] && ptq=$(accuracy "$out/ptq_$name.safetensors")
    grep '"event":"eval"' "$folder/metrics.jsonl" | sed 's/.*"accuracy":\([0-9.]*\).*/\1/' |
      awk -v run="$name" -v ptq="$ptq" -v state="$(sed -n 's/.*"state_hash": "\(.\{12\}\).*/\1/p' "$folder/summary.json")" '
        {if ($1 > best) best = $1; last = $1}
        END {printf "| %s | %s | %.2f | %.2f | %s |\n", run, ptq, best, last, state}'
  done
}

case "${1:-} $#" in
  "table 1") table ;;
  "run 2" | "run 3") for seed in $2; do seed_runs "$seed" "${3:-$recipes}"; done ;;
  "ptq 2" | "ptq 3") for seed in $2; do ptq_runs "$seed" "${3:-$recipes}"; done ;;
  "budget 3") for seed in $2; do budget_runs "$seed" "$3"; done ;;
  *) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
