#!/usr/bin/env bash
# The table of docs/results/recipes.md: the character GPT with an update rule at several rates, one row a run.
#   scripts/recipes_table.sh DATA OUT ["RULE"] ["LR ..."] ["STEPS"] ["CONFIG ..."] ["SEED ..."]
# DATA holds text/tinyshakespeare.txt, OUT gets the run folders; a run that is there already is not repeated. BITGRAD is
# the program (build/release/bin/bitgrad). Prints: configuration, rule, rate, steps, seed, loss, processor seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
data=$1 out=$2 rule=${3:-muon} rates=${4:-0.012} steps=${5:-800} seeds=${7:-1337 1338 1339}
configs=${6:-shakespeare_gpt_cpu shakespeare_gpt_cpu_int8}
program=${BITGRAD:-build/release/bin/bitgrad}
mkdir -p "$out"
for config in $configs; do
  for lr in $rates; do
    for seed in $seeds; do
      run=$out/${config}_${rule}_${lr}_${steps}_$seed
      case $rule in
        muon | normuon) aux=", aux: {lr: 0.004, betas: [0.9, 0.99], decay: matrices}" ;;
        adam | adamw) aux=", betas: [0.9, 0.99], decay: matrices" ;;
        *) aux=", decay: matrices" ;;
      esac
      if [ ! -f "$run.log" ]; then
        rm -rf "$run"
        TIMEFORMAT=%U
        { time "$program" train "configs/$config.yaml" --out "$run" --quiet "data.root=$data" device.threads=1 \
          log.report=false "optim={name: $rule, lr: $lr, weight_decay: 0.1, clip_norm: 1$aux}" "run.seed=$seed" \
          "train.stop=$steps steps" "schedule.warmup=$((steps / 10)) steps" "train.eval.every=$steps steps" \
          > "$run.part"; } 2> "$run.time"
        mv "$run.part" "$run.log"
      fi
      loss=$(sed -n 's/^loss.*: \([0-9.]*\) of .*/\1/p' "$run.log")
      echo "$config $rule $lr $steps $seed ${loss:-none} $(tail -1 "$run.time")"
    done
  done
done
