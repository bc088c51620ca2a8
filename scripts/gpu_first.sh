# The first half hour on a GPU: stage `first` of scripts/gpu_check.sh, which reads this file and whose functions it uses. Steps go from
# cheap to expensive, each has a limit, and the archive of the results is made anew after each: what is there when the time
# ends is useful. All limits together are 30 minutes.

# Files of tests/cuda/, from simple kernels to whole runs: a red one explains those behind it.
test_files="fragments bit_tricks flag frag64 pack reduce quantize unaligned refused map rowwise gemm_reference gemm_simt gemm_mma gemm_floats
gemm_wgmma wgmma_store gemm_batch cublaslt row_sums update_rows fused quant tensor augment autograd images norm_signs
binarize_calls transposed_calls optim update_sweep parameter not_finite graph feed feed_run train generate image_states
language_states example"

# tests_by_file SECONDS_A_FILE FILTER: each file in a process of its own.
tests_by_file() {
  red=
  files=$test_files
  [ -n "$BITGRAD_GPU_CHECK_SMALL" ] && files="fragments reduce gemm_wgmma train"
  seconds_before=$limit
  limit=$(least "$limit" "$1")
  for file in $files; do
    before=$failed
    check "tests_$file" "$tests" -# "[#${file}_test]$2"
    [ $failed -eq $before ] || red="$red $file"
  done
  limit=$seconds_before
}

# Red files again under memcheck: which access is wrong.
first_faults() {
  [ -n "$red" ] || { skip memcheck_red "all test files passed"; return; }
  command -v compute-sanitizer > /dev/null || { skip memcheck_red "no compute-sanitizer"; return; }
  for file in $red; do
    BITGRAD_TEST_SHAPES=5 check "memcheck_$file" compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" -# "[#${file}_test]~[slow]"
  done
}

# The two ratios that the backend was built for, with the clocks under load beside them.
first_ratios() {
  shapes
  monitor=
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi dmon -s pc > "$out/dmon.txt" 2>&1 &
    monitor=$!
  fi
  # shellcheck disable=SC2086 # words without spaces
  check first_products "$build/bin/bench_gemm" --device cuda --fast-rows --kernel wgmma --shape $product --dtypes int8,int8 \
    --dtypes bint1,bint1 --repeat $few --json "$out/first_products.json"
  # shellcheck disable=SC2086
  check first_long "$build/bin/bench_gemm" --device cuda --fast-rows --kernel wgmma --shape $long --dtypes bint1,bint1 --repeat $few \
    --json "$out/first_long.json"
  [ -z "$monitor" ] || kill "$monitor" 2> /dev/null
}

# Where the clocks of the two products go.
first_stalls() {
  command -v ncu > /dev/null || { skip stalls "no ncu"; return; }
  shapes
  for pair in int8,int8 bint1,bint1; do
    # shellcheck disable=SC2086
    check "stalls_${pair%,*}" ncu --clock-control none --set detailed -k regex:wgmma256 -c 2 "$build/bin/bench_gemm" --device cuda \
      --fast-rows --kernel wgmma --shape $product --dtypes $pair --repeat 1
  done
}

first_memory_and_steps() {
  shapes
  # shellcheck disable=SC2086
  {
    check first_bandwidth "$build/bin/bench_bandwidth" --device cuda --shape $matrix --family quantize,pack,optimizer $copy --repeat "$few" \
      --json "$out/first_bandwidth.json"
    check first_steps "$build/bin/bench_step" --device cuda --layer w8a8,binary --shape $step --grad int8 --repeat $few \
      --json "$out/first_steps.json"
    check first_recorded "$build/bin/bench_step" --device cuda --layer w8a8,binary --shape $step --grad int8 --recorded --repeat $few \
      --json "$out/first_recorded.json"
  }
}

first_rivals() {
  command -v python3 > /dev/null || { skip first_peers "no python3"; return; }
  shapes
  check first_peers python3 scripts/gpu_peers.py --shape "$product" --shape "$long" --step "$step" --no-compile --repeat 7 --json "$out/peers.jsonl"
}

first() {
  export BITGRAD_CUDA_SYNC=1
  begin_step 300
  device
  tests_by_file 20 "~[slow]"
  archive
  begin_step 240
  first_faults
  archive
  unset BITGRAD_CUDA_SYNC
  begin_step 240
  first_ratios
  archive
  begin_step 240
  first_stalls
  archive
  begin_step 240
  first_memory_and_steps
  archive
  begin_step 240
  first_rivals
  archive
  begin_step 300
  bench
  # Rows of trainings are missing and count nothing here.
  if command -v python3 > /dev/null; then
    python3 scripts/gpu_table.py "$out" --shape "$product" --long "$long" --step "$step" > "$out/table.txt" 2>&1
    cat "$out/table.txt"
  fi
  archive
  end_steps
}
