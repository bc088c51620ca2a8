#!/bin/sh
# Trains a 1-bit net on MNIST or CIFAR-10 on cuda:0 and compares its best accuracy with the published one.
#
#   BITGRAD_DATA=DIR scripts/gpu_train.sh BUILD_FOLDER tfc|sfc|lfc|mlp4096|cnv|resnet20 SECONDS RESULTS.jsonl
#
# The published schedule where it fits into SECONDS, else as many epochs as fit, and its rate falls in as many steps as
# the published one's. Appends a JSON line to RESULTS.jsonl. Exit code: 0 when best >= published - 0.3, 1 when it is
# less, 77 without the data, 2 and more for errors. BITGRAD_GPU_CHECK_SMALL=1: one epoch.
[ $# = 4 ] || { sed -n '2,9p' "$0" >&2; exit 2; }
build=$1 net=$2 seconds=$3 results=$4
# Published figures: best epoch on the test set; FINN nets: Xilinx brevitas; mlp4096: BinaryNet; resnet20: IR-Net.
# full: epochs of the published schedule.
task=mnist full=1000
case $net in
  tfc) published=93.17 ;;
  sfc) published=97.81 ;;
  lfc) published=98.88 ;;
  mlp4096) published=99.04 ;;
  cnv) task=cifar10 published=84.22 ;;
  resnet20) task=cifar10 published=86.5 full=400 ;;
  *) echo "gpu_train.sh: there is no net $net; expected tfc, sfc, lfc, mlp4096, cnv or resnet20." >&2; exit 2 ;;
esac
config=$(dirname "$0")/../configs/${task}_${net}_w1a1.yaml
case $task in
  mnist) file=mnist/train-images-idx3-ubyte.gz ;;
  cifar10) file=cifar-10-batches-bin/data_batch_1.bin ;;
esac
[ -f "$BITGRAD_DATA/$file" ] || { echo "no $file in BITGRAD_DATA ($BITGRAD_DATA)"; exit 77; }
runs=$(mktemp -d) || exit 2
trap 'rm -rf "$runs"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" "$runs/$2/summary.json" | head -n 1; }
train() { # FOLDER EPOCHS KEY=VALUE...
  folder=$1 epochs=$2
  shift 2
  "$build/bin/bitgrad" train "$config" device.kind=cuda "data.root=$BITGRAD_DATA" "train.stop=$epochs epochs" \
    train.eval.batch=1000 "checkpoint.every=$epochs epochs" log.quantization=off "$@" -q --out "$runs/$folder" || exit $?
}

# What an epoch takes: two of them, whose first loads what is loaded late.
begin=$(date +%s)
train probe 2
epochs=$(awk -v two="$(number seconds probe)" -v left="$((seconds - $(date +%s) + begin))" -v full=$full \
  'BEGIN {n = two > 0 ? int(0.9 * left / (two / 2)) : full; if (n > full) n = full; if (n < 1) n = 1; print n}')
[ -n "$BITGRAD_GPU_CHECK_SMALL" ] && epochs=1
# The rate falls by the same factor over the whole run as in the published one. A cosine does so by itself.
case $net in
  resnet20) key=schedule.name value=cosine ;;
  mlp4096) key=schedule.gamma value=$(awk -v n="$epochs" 'BEGIN {printf "%.9f", exp(log(1e-4) / n)}') ;;
  *) key=schedule.every value="$(awk -v n="$epochs" 'BEGIN {e = int(n / 25); print (e > 0 ? e : 1)}') epochs" ;;
esac
train run "$epochs" "$key=$value"
best=$(number best_accuracy run)
bar=$(awk -v p=$published 'BEGIN {printf "%.2f", p - 0.3}')
met=$(awk -v b="$best" -v bar="$bar" 'BEGIN {print (b >= bar) ? "true" : "false"}')
printf '{"train": "%s", "epochs": %d, "published_epochs": %d, "schedule": "%s=%s", "best": %s, "last": %s, "published": %s, "bar": %s, "met": %s, "seconds": %s}\n' \
  "$net" "$epochs" $full "$key" "$value" "${best:-null}" "$(number last_accuracy run)" $published "$bar" "$met" "$(number seconds run)" |
  tee -a "$results"
[ "$met" = true ]
