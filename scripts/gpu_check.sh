#!/bin/sh
# Checks and measures a build on a machine with a GPU. Nothing is installed; python3 (with PyTorch) is used where it is.
#
#   scripts/gpu_check.sh [BUILD_FOLDER [STAGE...]]     default: build/release, all stages in this order
#
#   device     what is there: kernels, libraries, clocks
#   tests      all tests of the CUDA backend against the CPU's bits
#   bench      ceilings (copy, bf16 products by cuBLASLt), products, memory-bound kernels, training steps
#   peers      the same products and steps in PyTorch, right after bench
#   train      runs on drawn digits
#   tfc sfc lfc mlp4096    one net on MNIST each ($BITGRAD_DATA), to the published accuracy less 0.3
#   cnv resnet20           the same on CIFAR-10
#   sanitizer  compute-sanitizer over the tests, where it is installed
#   table      what | ours | rival | ratio | must | aim, of all that lies in the folder of results
#
# Results go to BITGRAD_GPU_CHECK_OUT (BUILD_FOLDER/gpu_check): checks.jsonl, a JSON line for each check, appended when
# it ends; NAME.log; bench_*.json; peers.jsonl; train.jsonl; table.txt and table.jsonl. They are added to: remove the
# folder for a new start. BITGRAD_GPU_CHECK_SECONDS: time for one check (450). BITGRAD_GPU_CHECK_SMALL=1: tiny shapes
# and one epoch, to try the script itself.
# Exit code: the number of failed checks, at most 100. A check that ends with 77 is skipped.
build=$(cd "${1:-build/release}" 2> /dev/null && pwd) || { echo "gpu_check.sh: there is no folder ${1:-build/release}." >&2; exit 2; }
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/.." || exit 2
all="device tests bench peers train tfc sfc lfc mlp4096 cnv resnet20 sanitizer table"
stages=${*:-$all}
for stage in $stages; do
  case " $all " in
    *" $stage "*) ;;
    *) echo "gpu_check.sh: there is no stage $stage; expected $all." >&2; exit 2 ;;
  esac
done
limit=${BITGRAD_GPU_CHECK_SECONDS:-450}
out=${BITGRAD_GPU_CHECK_OUT:-$build/gpu_check}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
# Libraries that were carried with the binaries (scripts/gpu_bundle.sh).
[ -d "$build/lib" ] && export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export BITGRAD_GEMM_COSTS=/nonexistent/gemm_costs.txt # costs as shipped, as in ctest
tests=$build/bin/tests/test_cuda_gpu
failed=0
summary=

# check NAME COMMAND...
check() {
  name=$1
  shift
  begin=$(date +%s)
  timeout -k 10 "$limit" "$@" > "$out/$name.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begin))
  case $code in
    0) result=passed ;;
    77) result="skipped: $(tail -n 1 "$out/$name.log" | sed 's/^skipped: //' | tr -cd 'A-Za-z0-9 .,:;()/_-' | cut -c 1-100)" ;;
    124 | 137) result="no end after $limit s" ;;
    *) result="failed with $code" ;;
  esac
  case $result in passed | skipped*) ;; *) failed=$((failed + 1)) ;; esac
  printf '{"check": "%s", "result": "%s", "seconds": %d, "log": "%s.log"}\n' "$name" "$result" "$seconds" "$name" >> "$out/checks.jsonl"
  summary="$summary$(printf '%-26s %5d s  %s' "$name" "$seconds" "$result")
"
  echo "$name: $result, $seconds s"
  case $result in passed | skipped*) ;; *) tail -n 8 "$out/$name.log" ;; esac
}

skip() { # NAME REASON
  printf '{"check": "%s", "result": "skipped: %s", "seconds": 0}\n' "$1" "$2" >> "$out/checks.jsonl"
  summary="$summary$(printf '%-26s     0 s  skipped: %s' "$1" "$2")
"
}

shapes() { # the shape of products, the long one, of the memory-bound kernels, of the step
  if [ -n "$BITGRAD_GPU_CHECK_SMALL" ]; then
    product=128,64,128 long=128,64,256 matrix=64,128 step=64,32,96 gx=64,32,96 gw=96,32,64
    more="--repeat 1" copy="--copy-mib 1" nets=tfc
  else
    product=8192,4096,4096 long=8192,4096,16384 matrix=8192,4096 step=8192,4096,4096 gx=8192,4096,4096 gw=4096,4096,8192
    more='' copy='' nets=tfc,sfc,lfc,mlp4096
  fi
}

bench() {
  shapes
  # shellcheck disable=SC2086 # $more and $copy are lists
  {
    check bench_products "$build/bin/bench_gemm" --device cuda --fast-rows --shape $product --dtypes int8,int8 \
      --dtypes int8,int4 --dtypes int8,int2 --dtypes int8,bint1 --dtypes bint1,bint1 $more --json "$out/bench_products.json"
    check bench_long "$build/bin/bench_gemm" --device cuda --fast-rows --shape $long --dtypes bint1,bint1 $more \
      --json "$out/bench_long.json"
    check bench_gx "$build/bin/bench_gemm" --device cuda --fast-rows --shape $gx --dtypes int8,int8 --product gx $more \
      --json "$out/bench_gx.json"
    check bench_gw "$build/bin/bench_gemm" --device cuda --fast-rows --shape $gw --dtypes int8,int8 --product gw $more \
      --json "$out/bench_gw.json"
    check bench_bandwidth "$build/bin/bench_bandwidth" --device cuda --shape $matrix $copy $more \
      --json "$out/bench_bandwidth.json"
    check bench_steps "$build/bin/bench_step" --device cuda --layer w8a8,binary --shape $step --grad int8 $more \
      --json "$out/bench_steps.json"
    check bench_nets "$build/bin/bench_step" --device cuda --net $nets --grad int8 --recorded $more \
      --json "$out/bench_nets.json"
  }
}

peers() {
  shapes
  command -v python3 > /dev/null || { skip peers "no python3"; return; }
  check peers python3 scripts/gpu_peers.py --shape "$product" --shape "$long" --step "$step" --json "$out/peers.jsonl"
}

train() {
  runs=$(mktemp -d) || exit 2
  [ -n "$BITGRAD_GPU_CHECK_SMALL" ] && set -- "train.stop=1 epochs" data.train.size=400 data.test.size=200
  for config in digits_mlp_w1a1 digits_mlp_qat_phases; do
    check "train_$config" "$build/bin/bitgrad" train "configs/$config.yaml" device.kind=cuda "$@" --out "$runs/$config"
  done
  rm -rf "$runs"
}

sanitizer() {
  command -v compute-sanitizer > /dev/null || { skip sanitizer "no compute-sanitizer"; return; }
  [ -x "$tests" ] || { skip sanitizer "no test_cuda_gpu"; return; }
  # A few tests at a time, so that each part ends in time.
  parts=$([ -n "$BITGRAD_GPU_CHECK_SMALL" ] && echo 2 || echo 8)
  # Catch2 of version 2, and of version 3.
  timeout 60 "$tests" --list-test-names-only "~[slow]" 2> /dev/null | sed '/^$/d' > "$out/tests.txt"
  [ -s "$out/tests.txt" ] || timeout 60 "$tests" --list-tests --verbosity quiet "~[slow]" | sed '/^$/d' > "$out/tests.txt"
  [ -s "$out/tests.txt" ] || { skip sanitizer "test_cuda_gpu lists no tests"; return; }
  part=1
  while [ "$part" -le "$parts" ]; do
    awk -v n="$parts" -v i="$((part - 1))" '(NR - 1) % n == i' "$out/tests.txt" > "$out/tests_$part.txt"
    [ -s "$out/tests_$part.txt" ] || break # an empty list would run them all
    for tool in memcheck racecheck; do
      BITGRAD_TEST_SHAPES=20 check "${tool}_$part" compute-sanitizer --tool "$tool" --error-exitcode 1 "$tests" -f "$out/tests_$part.txt"
    done
    part=$((part + 1))
  done
}

table() {
  command -v python3 > /dev/null || { skip table "no python3"; return; }
  shapes
  check table python3 scripts/gpu_table.py "$out" --shape "$product" --long "$long" --step "$step"
  cp "$out/table.log" "$out/table.txt"
  cat "$out/table.txt"
}

for stage in $stages; do
  case $stage in
    device)
      check version "$build/bin/bitgrad" version
      # shellcheck disable=SC2016 # $0 and $1 are those of the inner shell
      check device sh -c '"$0" kernels > "$1" && cat "$1" && grep -q "^cuda:0" "$1"' "$build/bin/bitgrad" "$out/kernels.txt"
      if command -v nvidia-smi > /dev/null; then check clocks nvidia-smi -q -d CLOCK,POWER,TEMPERATURE; fi
      ;;
    tests) check tests "$tests" ;;
    tfc | sfc | lfc | mlp4096)
      check "mnist_$stage" scripts/gpu_train.sh "$build" "$stage" "$((limit * 9 / 10))" "$out/train.jsonl"
      ;;
    cnv | resnet20)
      check "cifar10_$stage" scripts/gpu_train.sh "$build" "$stage" "$((limit * 9 / 10))" "$out/train.jsonl"
      ;;
    bench) bench ;;
    peers) peers ;;
    train) train ;;
    sanitizer) sanitizer ;;
    table) table ;;
  esac
done
printf '\n%s' "$summary"
[ $failed -le 100 ] || failed=100
exit $failed
