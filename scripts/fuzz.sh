#!/usr/bin/env bash
# usage: scripts/fuzz.sh [SECONDS [TARGET...]]   runs each fuzz target so long (default 60), one after the other.
# Needs clang++ and its compiler-rt (Debian 12: apt-get install clang-14 libclang-rt-14-dev libomp-14-dev). New inputs go to
# build/fuzz/corpus/<target>, findings to build/fuzz/findings/<target>-*; a finding ends the script with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(config idx npz csv picture safetensors gguf interop checkpoint tokenizer report)

[ -f build/release/build.ninja ] || cmake --preset release
cmake --build --preset release --target bitgrad
cmake --preset fuzz
for target in "${targets[@]}"; do
  cmake --build --preset fuzz --target "fuzz_$target"
done

mkdir -p build/fuzz/findings
export BITGRAD_GEMM_COSTS=/nonexistent/gemm_costs.txt OMP_NUM_THREADS=1
status=0
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target, $seconds s"
  # 25 s and 2 GiB an input: above them it is a finding.
  build/fuzz/bin/tests/"fuzz_$target" "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" \
    -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$target-" >"build/fuzz/$target.log" 2>&1 || status=1
  grep -E "^stat::number_of_executed_units|^stat::peak_rss_mb|^SUMMARY|^==[0-9]+== ERROR|does not hold|an Error of code" "build/fuzz/$target.log" || true
done
exit "$status"
