#!/bin/sh
# Checks and measures a build on a machine with a GPU. Nothing is installed.
#
#   scripts/gpu_check.sh [BUILD_FOLDER [STAGE...]]     default: build/release, all stages
#
# Stages: device (what is there), tests (all tests of the CUDA backend against the CPU's bits), sanitizer
# (compute-sanitizer over them, where it is installed), train (runs on the GPU; with $BITGRAD_DATA also MNIST), bench
# (products beside bf16, steps; their tables are BUILD_FOLDER/gpu_bench_*.json). Every check appends a JSON line to
# BUILD_FOLDER/gpu_check.jsonl and a line to the table at the end. BITGRAD_GPU_CHECK_SECONDS: time for one check (450).
# Exit code: the number of failed checks.
build=${1:-build/release}
[ $# -gt 0 ] && shift
stages=${*:-device tests train bench sanitizer}
limit=${BITGRAD_GPU_CHECK_SECONDS:-450}
log=$build/gpu_check.jsonl
failed=0
table=
: > "$log" || exit 2

# check NAME COMMAND...: exit code 77 is a skip.
check() {
  name=$1
  shift
  begin=$(date +%s)
  timeout "$limit" "$@" > "$build/gpu_check.$name.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begin))
  case $code in
    0) result=passed ;;
    77) result=skipped ;;
    124) result="no end after $limit s"; failed=$((failed + 1)) ;;
    *) result="failed with $code"; failed=$((failed + 1)) ;;
  esac
  printf '{"check": "%s", "result": "%s", "seconds": %d, "log": "gpu_check.%s.log"}\n' "$name" "$result" "$seconds" "$name" >> "$log"
  table="$table$(printf '%-24s %5d s  %s' "$name" "$seconds" "$result")
"
  [ "$code" = 0 ] || tail -n 5 "$build/gpu_check.$name.log"
}

for stage in $stages; do
  case $stage in
    device)
      check device "$build/bin/bitgrad" kernels
      command -v nvidia-smi > /dev/null && check clocks nvidia-smi -q -d CLOCK,POWER,TEMPERATURE
      ;;
    tests) check tests "$build/bin/tests/test_cuda_gpu" ;;
    sanitizer)
      if command -v compute-sanitizer > /dev/null; then
        for tool in memcheck racecheck; do
          check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/bin/tests/test_cuda_gpu"
        done
      fi
      ;;
    train)
      runs=$(mktemp -d) || exit 2
      for config in digits_mlp_w1a1 digits_mlp_qat_phases; do
        check "train_$config" "$build/bin/bitgrad" train "configs/$config.yaml" device.kind=cuda --out "$runs/$config"
      done
      if [ -n "$BITGRAD_DATA" ]; then
        for config in mnist_tfc_w1a1 mnist_mlp_qat; do
          check "train_$config" "$build/bin/bitgrad" train "configs/$config.yaml" device.kind=cuda "train.stop=20 epochs" --out "$runs/$config"
        done
      fi
      rm -rf "$runs"
      ;;
    bench)
      check bench_gemm "$build/bin/bench_gemm" --device cuda --shape 8192,4096,4096 --dtypes int8,int8 --dtypes int8,int4 \
        --dtypes int8,int2 --dtypes int8,bint1 --dtypes bint1,bint1 --json "$build/gpu_bench_gemm.json"
      check bench_gemm_long "$build/bin/bench_gemm" --device cuda --shape 8192,4096,16384 --dtypes bint1,bint1 \
        --json "$build/gpu_bench_gemm_long.json"
      check bench_step "$build/bin/bench_step" --device cuda --json "$build/gpu_bench_step.json"
      ;;
    *)
      echo "gpu_check.sh: there is no stage $stage; expected device, tests, train, bench, sanitizer." >&2
      exit 2
      ;;
  esac
done
printf '%s' "$table"
exit $failed
