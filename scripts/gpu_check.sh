#!/bin/sh
# Checks and measures a build on a machine with a GPU. Nothing is installed; python3 (with PyTorch) is used where it is.
#
#   scripts/gpu_check.sh [BUILD_FOLDER [STAGE...]]     default: build/release, all stages in this order
#
#   device     what is there: kernels, libraries, clocks
#   tests      all tests of the CUDA backend against the CPU's bits, each file in a process of its own
#   bench      ceilings (copy, bf16 products by cuBLASLt), products, memory-bound kernels, training steps
#   peers      the same products and steps in PyTorch, right after bench
#   train      runs on drawn digits
#   tfc sfc lfc mlp4096    one net on MNIST each ($BITGRAD_DATA), to the published accuracy less 0.3
#   cnv resnet20           the same on CIFAR-10
#   sanitizer  compute-sanitizer over the tests, where it is installed
#   first      the first half hour on a GPU, cheap to expensive (scripts/gpu_first.sh); not among "all"
#   table      what | ours | rival | ratio | must | aim, of all that lies in the folder of results
#
# Results go to BITGRAD_GPU_CHECK_OUT (BUILD_FOLDER/gpu_check): checks.jsonl, a JSON line for each check, appended when
# it ends; NAME.log; bench_*.json; peers.jsonl; train.jsonl; table.txt and table.jsonl. They are added to: remove the
# folder for a new start. BITGRAD_GPU_CHECK_SECONDS: time for one check (450). BITGRAD_GPU_CHECK_SMALL=1: tiny shapes
# and one epoch, to try the script itself. After every stage the folder is packed into BITGRAD_GPU_CHECK_OUT.tgz.
# cuBLASLt: BITGRAD_CUBLASLT, else that of the python3 of the PATH, else where the library looks.
# Exit code: the number of failed checks, at most 100. A check that ends with 77 is skipped.
build=$(cd "${1:-build/release}" 2> /dev/null && pwd) || { echo "gpu_check.sh: there is no folder ${1:-build/release}." >&2; exit 2; }
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/.." || exit 2
all="device tests bench peers train tfc sfc lfc mlp4096 cnv resnet20 sanitizer table"
stages=${*:-$all}
for stage in $stages; do
  case " first $all " in
    *" $stage "*) ;;
    *) echo "gpu_check.sh: there is no stage $stage; expected first $all." >&2; exit 2 ;;
  esac
done
limit=${BITGRAD_GPU_CHECK_SECONDS:-450}
out=${BITGRAD_GPU_CHECK_OUT:-$build/gpu_check}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
if [ -z "$BITGRAD_CUBLASLT" ] && command -v python3 > /dev/null; then
  BITGRAD_CUBLASLT=$(python3 -c 'import glob, sys
found = [f for d in ("cu13/lib/libcublasLt.so.13", "cublas/lib/libcublasLt.so.12") for f in glob.glob(sys.prefix + "/lib/python3*/site-packages/nvidia/" + d)]
print(found[0] if found else "")' 2> /dev/null)
  if [ -n "$BITGRAD_CUBLASLT" ]; then export BITGRAD_CUBLASLT; else unset BITGRAD_CUBLASLT; fi
fi
[ -z "$BITGRAD_DATA" ] && [ -d data ] && export BITGRAD_DATA="$PWD/data" # carried by scripts/gpu_bundle.sh --data
export BITGRAD_GEMM_COSTS=/nonexistent/gemm_costs.txt # costs as shipped, as in ctest
tests=$build/bin/tests/test_cuda_gpu
failed=0
summary=
deadline= # of a step, seconds

# shellcheck source=scripts/gpu_first.sh
. scripts/gpu_first.sh

least() { if [ "$1" -lt "$2" ]; then echo "$1"; else echo "$2"; fi; }
begin_step() { deadline=$(($(date +%s) + $1)); }
end_steps() { deadline=; }
# What is there so far, in one file.
archive() { tar -C "$(dirname "$out")" -czf "$out.tgz.new" "$(basename "$out")" && mv "$out.tgz.new" "$out.tgz"; }

# check NAME COMMAND...
check() {
  name=$1
  shift
  begin=$(date +%s)
  allowed=$limit
  if [ -n "$deadline" ]; then
    allowed=$(least "$limit" $((deadline - begin)))
    [ "$allowed" -ge 1 ] || { skip "$name" "the time of this step is over"; return; }
  fi
  timeout -k 10 "$allowed" "$@" > "$out/$name.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begin))
  case $code in
    0) result=passed ;;
    77) result="skipped: $(tail -n 1 "$out/$name.log" | sed 's/^skipped: //' | tr -cd 'A-Za-z0-9 .,:;()/_-' | cut -c 1-100)" ;;
    124 | 137) result="no end after $allowed s" ;;
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
    more="--repeat 1" copy="--copy-mib 1" nets=tfc few=1
  else
    product=8192,4096,4096 long=8192,4096,16384 matrix=8192,4096 step=8192,4096,4096 gx=8192,4096,4096 gw=4096,4096,8192
    more='' copy='' nets=tfc,sfc,lfc,mlp4096 few=5 # repetitions of a quick look
  fi
}

bench() {
  shapes
  # shellcheck disable=SC2086 # $more and $copy are lists
  {
    check bench_products "$build/bin/bench_gemm" --device cuda --fast-rows --shape $product --dtypes int8,int8 \
      --dtypes int8,int4 --dtypes int8,int2 --dtypes int8,bint1 --dtypes bint1,bint1 --dtypes bf16,int4 --dtypes fp32,int4 $more \
      --json "$out/bench_products.json"
    check bench_long "$build/bin/bench_gemm" --device cuda --fast-rows --shape $long --dtypes bint1,bint1 $more \
      --json "$out/bench_long.json"
    check bench_gx "$build/bin/bench_gemm" --device cuda --fast-rows --shape $gx --dtypes int8,int8 --product gx $more \
      --json "$out/bench_gx.json"
    check bench_gw "$build/bin/bench_gemm" --device cuda --fast-rows --shape $gw --dtypes int8,int8 --product gw $more \
      --json "$out/bench_gw.json"
    check bench_kernels "$build/bin/bench_kernels" --device cuda --shape $matrix $copy $more \
      --json "$out/bench_kernels.json"
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
  # A file at a time, so that each part ends in time. racecheck knows neither clusters nor TMA: kernels without them.
  files=$test_files
  [ -n "$BITGRAD_GPU_CHECK_SMALL" ] && files="fragments reduce"
  for file in $files; do
    BITGRAD_TEST_SHAPES=20 check "memcheck_$file" compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" -# "[#${file}_test]~[slow]"
    case " reduce quantize pack elementwise update_rows " in
      *" $file "*)
        BITGRAD_TEST_SHAPES=20 check "racecheck_$file" compute-sanitizer --tool racecheck --error-exitcode 1 "$tests" -# "[#${file}_test]~[slow]"
        ;;
    esac
  done
}

table() {
  command -v python3 > /dev/null || { skip table "no python3"; return; }
  shapes
  check table python3 scripts/gpu_table.py "$out" --shape "$product" --long "$long" --step "$step"
  cp "$out/table.log" "$out/table.txt"
  cat "$out/table.txt"
}

device() {
  check version "$build/bin/bitgrad" version
  # shellcheck disable=SC2016 # $0 and $1 are those of the inner shell
  check device sh -c '"$0" kernels > "$1" && cat "$1" && grep -q "^cuda:0" "$1"' "$build/bin/bitgrad" "$out/kernels.txt"
  if command -v nvidia-smi > /dev/null; then check clocks nvidia-smi -q -d CLOCK,POWER,TEMPERATURE; fi
}

for stage in $stages; do
  case $stage in
    device) device ;;
    first) first ;;
    tests) tests_by_file "$limit" "" ;;
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
  archive
done
printf '\n%s' "$summary"
[ $failed -le 100 ] || failed=100
exit $failed
