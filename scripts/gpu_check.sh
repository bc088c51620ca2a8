#!/bin/sh
# Checks and measures a build on a machine with a GPU. Nothing is installed; python3 (with PyTorch) is used where it is.
#
#   scripts/gpu_check.sh [BUILD_FOLDER [STAGE...]]     default: build/release, all stages in this order
#
#   device     what is there: kernels, libraries, clocks
#   tests      all tests of the CUDA backend against the CPU's bits, each file in a process of its own
#   layers     the cases of the layers, with the GPU as the current device (target gpu_tests; memory is managed)
#   bench      ceilings (copy, bf16 products by cuBLASLt), products, the other kernels, training steps
#   peers      the same products and steps in PyTorch, right after bench
#   train      runs on drawn digits
#   tfc sfc lfc mlp4096    one net on MNIST each ($BITGRAD_DATA), to the published accuracy less 0.3
#   cnv resnet20           the same on CIFAR-10
#   sanitizer  compute-sanitizer over the tests, where it is installed
#   table      what | ours | rival | ratio | must | aim, of all that lies in the folder of results
#
# Not among "all":
#   first      the first half hour on a GPU, by steps that have a limit each: launches, quick tests, memcheck of red ones; then, unless a
#              launch failed, forms of tiles, products, kernels, steps and networks beside PyTorch, strict runs against the CPU
#   bundle     packs the build of `cmake --preset gpu` for another machine: BUILD_FOLDER/gpu_bundle.tar.gz
#
# Results go to BITGRAD_GPU_CHECK_OUT (BUILD_FOLDER/gpu_check): checks.jsonl, a JSON line for each check, appended when
# it ends; NAME.log; bench_*.json; peers.jsonl; train.jsonl; table.txt and table.jsonl. They are added to: remove the
# folder for a new start. BITGRAD_GPU_CHECK_SECONDS: time for one check (450). BITGRAD_GPU_CHECK_SMALL=1: tiny shapes
# and one epoch, to try the script itself. After every stage the folder is packed into BITGRAD_GPU_CHECK_OUT.tgz.
# cuBLASLt: BITGRAD_CUBLASLT, else that of the python3 of the PATH, else where the library looks.
# Exit code: the number of failed checks, at most 100. A check that ends with 77 is skipped.
# shellcheck disable=SC2046,SC2086,SC2317 # lists are variables, stages are functions
build=$(cd "${1:-build/release}" 2> /dev/null && pwd) || { echo "gpu_check.sh: there is no folder ${1:-build/release}." >&2; exit 2; }
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/.." || exit 2
all="device tests layers bench peers train tfc sfc lfc mlp4096 cnv resnet20 sanitizer table"
stages=${*:-$all}
for stage in $stages; do
  case " first bundle $all " in
    *" $stage "*) ;;
    *) echo "gpu_check.sh: there is no stage $stage; expected first bundle $all." >&2; exit 2 ;;
  esac
done
limit=${BITGRAD_GPU_CHECK_SECONDS:-450}
out=${BITGRAD_GPU_CHECK_OUT:-$build/gpu_check}
mkdir -p "$out" && out=$(cd "$out" && pwd) && scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
if [ -z "$BITGRAD_CUBLASLT" ] && command -v python3 > /dev/null; then
  BITGRAD_CUBLASLT=$(python3 -c 'import glob, sys
found = [f for d in ("cu13/lib/libcublasLt.so.13", "cublas/lib/libcublasLt.so.12") for f in glob.glob(sys.prefix + "/lib/python3*/site-packages/nvidia/" + d)]
print(found[0] if found else "")' 2> /dev/null)
  if [ -n "$BITGRAD_CUBLASLT" ]; then export BITGRAD_CUBLASLT; else unset BITGRAD_CUBLASLT; fi
fi
export BITGRAD_GEMM_COSTS=/nonexistent/gemm_costs.txt # costs as shipped, as in ctest
tests=$build/bin/tests/test_cuda_gpu
failed=0 summary='' deadline='' more='' # more: options of each benchmark
product=8192,4096,4096 long=8192,4096,16384 matrix=8192,4096 step=8192,4096,4096 gw=4096,4096,8192 nets=tfc,sfc,lfc,mlp4096 copy=''
if [ -n "$BITGRAD_GPU_CHECK_SMALL" ]; then
  product=128,64,128 long=128,64,256 matrix=64,128 step=64,32,96 gw=96,32,64 nets=tfc copy='--copy-mib 1' more='--repeat 1'
fi

has() { command -v "$1" > /dev/null; }
archive() { tar -C "$(dirname "$out")" -czf "$out.tgz.new" "$(basename "$out")" && mv "$out.tgz.new" "$out.tgz"; }
# Checks until the next call share this time, and what was found so far is packed.
begin_step() { archive; deadline=$(($(date +%s) + $1)); }

record() { # NAME RESULT SECONDS
  printf '{"check": "%s", "result": "%s", "seconds": %d, "log": "%s.log"}\n' "$1" "$2" "$3" "$1" >> "$out/checks.jsonl"
  summary="$summary$(printf '%-26s %5d s  %s' "$1" "$3" "$2")
"
  echo "$1: $2, $3 s"
}
skip() { record "$1" "skipped: $2" 0; } # NAME REASON

check() { # NAME COMMAND...; sets result
  name=$1
  shift
  begin=$(date +%s)
  allowed=$limit
  if [ -n "$deadline" ] && [ $((deadline - begin)) -lt "$limit" ]; then allowed=$((deadline - begin)); fi
  [ "$allowed" -ge 1 ] || { result=late; skip "$name" "the time of this step is over"; return; }
  timeout -k 10 "$allowed" "$@" > "$out/$name.log" 2>&1
  code=$?
  case $code in
    0) result=passed ;;
    77) result="skipped: $(tail -n 1 "$out/$name.log" | sed 's/^skipped: //' | tr -cd 'A-Za-z0-9 .,:;()/_-' | cut -c 1-100)" ;;
    124 | 137) result="no end after $allowed s" ;;
    *) result="failed with $code" ;;
  esac
  record "$name" "$result" $(($(date +%s) - begin))
  case $result in passed | skipped*) ;; *) failed=$((failed + 1)); tail -n 8 "$out/$name.log" ;; esac
}

device() {
  check version "$build/bin/bitgrad" version
  # shellcheck disable=SC2016 # $0 and $1 are those of the inner shell
  check device sh -c '"$0" kernels > "$1" && cat "$1" && grep -q "^cuda:0" "$1"' "$build/bin/bitgrad" "$out/kernels.txt"
  if has nvidia-smi; then check clocks nvidia-smi -q -d CLOCK,POWER,TEMPERATURE; fi
}

# Files of tests/cuda/ that the program holds.
test_files() { "$tests" -# --list-tags "$1" | sed -n 's/.*\[#\([a-z0-9_]*\)_test\].*/\1/p'; }

tests() { # FILTER; sets red
  red=
  files=$(test_files "$1")
  [ -n "$files" ] || check tests_listed "$tests" -# --list-tags "$1"
  [ -n "$BITGRAD_GPU_CHECK_SMALL" ] && files="fragments pack"
  for file in $files; do
    check "tests_$file" "$tests" -# "[#${file}_test]$1"
    case $result in passed | skipped* | late) ;; *) red="$red $file" ;; esac
  done
}

# Kernels' own cases pass arrays of the host, which a GPU may fail to read.
layers() {
  for layer in tensor quant autograd ops nn optim; do
    program=${tests%_cuda_gpu}_${layer}_gpu
    [ -x "$program" ] || { skip "layer_$layer" "not built (target gpu_tests)"; continue; }
    check "layer_$layer" env BITGRAD_TEST_DEVICE=cuda BITGRAD_CUDA_MANAGED=1 BITGRAD_CUDA_SYNC=1 BITGRAD_TEST_SHAPES=20 \
      BITGRAD_TEST_DEVICE_CASES=1 "$program" "~[cpu]~[slow]"
  done
}

sanitize() { # TOOL FILE...
  tool=$1
  shift
  has compute-sanitizer || { skip "$tool" "no compute-sanitizer"; return; }
  for file in "$@"; do
    BITGRAD_TEST_SHAPES=20 check "${tool}_$file" compute-sanitizer --tool "$tool" --error-exitcode 1 "$tests" -# "[#${file}_test]~[slow]"
  done
}

gemm() { # NAME OPTION...
  name=$1
  shift
  check "bench_$name" "$build/bin/bench_gemm" --device cuda --fast-rows "$@" $more --json "$out/bench_$name.json"
}

products() {
  gemm products --shape $product --dtypes int8,int8 --dtypes int8,int4 --dtypes int8,int2 --dtypes int8,bint1 --dtypes bint1,bint1 \
    --dtypes bf16,int4 --dtypes fp32,int4
  gemm long --shape $long --dtypes bint1,bint1
}
backward_products() {
  gemm gx --shape $step --dtypes int8,int8 --product gx
  gemm gw --shape $gw --dtypes int8,int8 --product gw
}
kernels() { check bench_kernels "$build/bin/bench_kernels" --device cuda --shape $matrix $copy $more --json "$out/bench_kernels.json"; }
steps() { # NAME OPTION...
  name=$1
  shift
  check "bench_$name" "$build/bin/bench_step" --device cuda "$@" --grad int8 $more --json "$out/bench_$name.json"
}

bench() {
  products
  backward_products
  kernels
  steps steps --layer w8a8,binary --shape $step
  steps nets --net $nets --recorded
}

peers() { # OPTION...
  has python3 || { skip peers "no python3"; return; }
  check peers python3 scripts/gpu_peers.py --shape $product --shape $long --step $step "$@" --json "$out/peers.jsonl"
}

train() {
  [ -n "$BITGRAD_GPU_CHECK_SMALL" ] && set -- "train.stop=1 epochs" data.train.size=400 data.test.size=200
  for config in digits_mlp_w1a1 digits_mlp_qat_phases; do
    check "train_$config" "$build/bin/bitgrad" train "configs/$config.yaml" device.kind=cuda "$@" --out "$scratch/$config"
  done
}

number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" "$scratch/$2/summary.json" | head -n 1; } # KEY CHECK
epochs() { # CHECK EPOCHS KEY=VALUE...
  run=$1 stop=$2
  shift 2
  check "$run" "$build/bin/bitgrad" train "configs/${task}_${net}_w1a1.yaml" device.kind=cuda "data.root=$BITGRAD_DATA" \
    "train.stop=$stop epochs" train.eval.batch=1000 "checkpoint.every=$stop epochs" log.quantization=off "$@" -q --out "$scratch/$run"
}

# The published schedule where it fits into the time of a check, else as many epochs as fit, in which the rate falls by the same
# factor. Published figures: best epoch on the test set. FINN nets: Xilinx brevitas; mlp4096: BinaryNet; resnet20: IR-Net.
train_net() { # NET
  net=$1 task=mnist full=1000 file=mnist/train-images-idx3-ubyte.gz
  case $net in
    tfc) published=93.17 ;;
    sfc) published=97.81 ;;
    lfc) published=98.88 ;;
    mlp4096) published=99.04 ;;
    cnv) published=84.22 task=cifar10 ;;
    resnet20) published=86.5 task=cifar10 full=400 ;;
  esac
  [ $task = mnist ] || file=cifar-10-batches-bin/data_batch_1.bin
  [ -f "$BITGRAD_DATA/$file" ] || { skip "${task}_$net" "no $file in BITGRAD_DATA ($BITGRAD_DATA)"; return; }
  begin=$(date +%s)
  epochs "probe_$net" 2 # the first loads what is loaded late
  [ "$result" = passed ] || return
  n=$(awk -v two="$(number seconds "probe_$net")" -v left="$((limit * 9 / 10 - $(date +%s) + begin))" -v full=$full \
    'BEGIN {n = two > 0 ? int(0.9 * left / (two / 2)) : full; if (n > full) n = full; if (n < 1) n = 1; print n}')
  [ -n "$BITGRAD_GPU_CHECK_SMALL" ] && n=1
  case $net in
    resnet20) schedule=schedule.name=cosine ;; # falls to 0 by itself
    mlp4096) schedule=schedule.gamma=$(awk -v n="$n" 'BEGIN {printf "%.9f", exp(log(1e-4) / n)}') ;;
    *) schedule="schedule.every=$(awk -v n="$n" 'BEGIN {e = int(n / 25); print (e > 0 ? e : 1)}') epochs" ;;
  esac
  epochs "${task}_$net" "$n" "$schedule"
  [ "$result" = passed ] || return
  best=$(number best_accuracy "${task}_$net")
  printf '{"train": "%s", "epochs": %d, "published_epochs": %d, "schedule": "%s", "best": %s, "last": %s, "published": %s, "seconds": %s}\n' "$net" "$n" \
    $full "$schedule" "$best" "$(number last_accuracy "${task}_$net")" $published "$(number seconds "${task}_$net")" >> "$out/train.jsonl"
  check "accuracy_$net" awk -v best="$best" -v published=$published \
    'BEGIN {print best " of " published; exit !(best >= published - 0.3 - 1e-9)}'
}

table() {
  has python3 || { skip table "no python3"; return; }
  check table python3 scripts/gpu_table.py "$out" --shape $product --long $long --step $step
  cp "$out/table.log" "$out/table.txt"
  cat "$out/table.txt"
}

# Each form of a wgmma tile on one cluster: code for the GPU, tensor maps, shared memory, clusters. Sets launched.
launches() {
  launched=yes
  for tile in narrow:64,128,128 wide:128,256,128 turns:256,256,128; do
    for pair in int8,int8 bint1,bint1; do
      check "launch_${tile%:*}_${pair%,*}" env BITGRAD_CUDA_SYNC=1 BITGRAD_WGMMA_FORM="${tile%:*}" "$build/bin/bench_gemm" --device cuda \
        --kernel wgmma --shape "${tile#*:}" --dtypes $pair --repeat 1
      case $result in passed | skipped*) ;; *) launched=no ;; esac
    done
  done
}

# Products with each form of the tile, and the clock under them: below 1400 MHz no ratio means anything.
forms() {
  clocks=
  if has nvidia-smi; then
    nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits --loop=1 > "$out/clocks.csv" 2> /dev/null &
    clocks=$!
  fi
  for form in wide narrow turns; do
    for shape in $product $long; do
      check "form_${form}_${shape##*,}" env BITGRAD_WGMMA_FORM=$form "$build/bin/bench_gemm" --device cuda --kernel wgmma --shape "$shape" \
        --dtypes int8,int8 --dtypes bint1,bint1 $more --json "$out/bench_form_${form}_${shape##*,}.json"
    done
  done
  [ -n "$clocks" ] || return
  kill "$clocks" 2> /dev/null
  record clock "$(sort -n "$out/clocks.csv" | awk '{v[NR] = $1} END {m = v[int((NR + 1) / 2)]
    print NR == 0 ? "skipped: nvidia-smi names none" : m < 1400 ? "note: median " m " MHz, below 1400: ratios are void" : "median " m " MHz"}')" 0
}

# Where the clocks of the two products go. Hosted machines often refuse counters: then two checks would take their time in vain.
stalls() {
  has ncu || { skip stalls "no ncu"; return; }
  if ncu --metrics sm__cycles_elapsed.max -c 1 "$build/bin/bench_gemm" --device cuda --fast-rows --shape 64,64,64 --dtypes int8,int8 --repeat 1 2>&1 |
    grep -q ERR_NVGPUCTRPERM; then
    skip stalls "no permission to read performance counters (ERR_NVGPUCTRPERM)"
    return
  fi
  for pair in int8,int8 bint1,bint1; do
    check "stalls_${pair%,*}" ncu --clock-control none --set detailed -k regex:wgmma256 -c 2 "$build/bin/bench_gemm" --device cuda \
      --fast-rows --kernel wgmma --shape $product --dtypes $pair --repeat 1
  done
}

# Language models and conv nets, with PyTorch's, and where their time goes.
models() {
  steps models --net gpt,cnv,resnet20 --recorded
  check generate "$build/bin/bench_generate" --device cuda --tokens 64 --recipes none,w8a8 $more --json "$out/bench_generate.json"
  if has nsys; then
    check timeline env BITGRAD_NVTX=1 nsys profile --stats=true --force-overwrite=true -t cuda,nvtx -o "$out/timeline" \
      "$build/bin/bench_step" --device cuda --net gpt --recorded --no-parts --repeat 1
  else
    skip timeline "no nsys"
  fi
  if has python3; then
    check peers_gpt python3 scripts/bench_gpt_peers.py --device cuda --net gpt --quant float --rounds 1 --bench "$build/bin/bench_step" --json "$out/peers_gpt.json"
    check peers_conv python3 scripts/bench_conv_peers.py --device cuda --rounds 1 --bench "$build/bin/bench_step" --json "$out/peers_conv.json"
  fi
}

# Runs whose bits must be those of the CPU.
strict() {
  for config in digits_mlp_w1a1 digits_residual_w1a8; do
    for kind in cpu cuda; do
      check "strict_${config}_$kind" "$build/bin/bitgrad" train "configs/$config.yaml" run.bits=strict "train.stop=20 steps" device.kind=$kind \
        -q --out "$scratch/strict_${config}_$kind"
    done
    # shellcheck disable=SC2016 # $0 is that of the inner shell
    check "strict_$config" sh -c 'a=$(grep state_hash "$0_cpu/summary.json") && b=$(grep state_hash "$0_cuda/summary.json") && echo "$a" "$b" && [ "$a" = "$b" ]' \
      "$scratch/strict_$config"
  done
}

first() { # 30 minutes at most; what is there when the time ends is useful
  all_limit=$limit
  more='--repeat 5'
  begin_step 60
  device
  launches
  begin_step 300
  export BITGRAD_CUDA_SYNC=1
  [ "$limit" -lt 20 ] || limit=20
  tests "~[slow]"
  unset BITGRAD_CUDA_SYNC
  limit=$all_limit
  if [ -n "$red" ]; then
    begin_step 240
    sanitize memcheck $red
  fi
  if [ $launched = no ]; then
    skip timing "a first launch failed: times of wrong kernels say nothing"
    deadline=
    return
  fi
  begin_step 240
  forms
  stalls
  begin_step 180
  products
  gemm floats --shape $product --dtypes fp32,fp32
  begin_step 180
  backward_products
  kernels
  begin_step 240
  steps steps --layer w8a8,binary --shape $step
  steps steps_recorded --layer w8a8,binary --shape $step --recorded
  steps nets --net $nets --recorded
  peers --repeat 7
  begin_step 240
  models
  begin_step 120
  strict
  train
  table
  deadline=
}

# Programs, the libraries that they need beside the C library and the driver's, configurations and scripts.
bundle() {
  programs="bitgrad bench_gemm bench_step bench_kernels bench_generate tests/test_cuda_gpu"
  for layer in tensor quant autograd ops nn optim; do [ -x "$build/bin/tests/test_${layer}_gpu" ] && programs="$programs tests/test_${layer}_gpu"; done
  top=$scratch/bitgrad_gpu
  mkdir -p "$top/build/bin/tests" "$top/build/lib"
  libraries() { for p in $programs; do ldd "$1/$p"; done | awk '$2 == "=>" {print $3}' | sort -u | grep -v -E '/(libc|libm|libdl|librt|libpthread|libresolv)\.so'; }
  for p in $programs; do cp "$build/bin/$p" "$top/build/bin/$p" || exit 2; done
  for l in $(libraries "$build/bin"); do cp -L "$l" "$top/build/lib/" || exit 2; done
  strip "$top"/build/bin/* "$top"/build/bin/tests/* "$top"/build/lib/* 2> /dev/null
  if libraries "$top/build/bin" | grep -v "^$top/"; then
    echo "gpu_check.sh: the programs do not look for these libraries beside themselves. Build with cmake --preset gpu." >&2
    exit 2
  fi
  cp -R scripts configs "$top/" && tar -C "$scratch" -czf "$build/gpu_bundle.tar.gz" bitgrad_gpu && ls -l "$build/gpu_bundle.tar.gz"
}

for stage in $stages; do
  case $stage in
    tests) tests "" ;;
    tfc | sfc | lfc | mlp4096 | cnv | resnet20) train_net $stage ;;
    sanitizer) # racecheck knows neither clusters nor TMA
      if [ -n "$BITGRAD_GPU_CHECK_SMALL" ]; then files="fragments pack"; else files=$(test_files "~[slow]"); fi
      sanitize memcheck $files
      sanitize racecheck $(printf '%s\n' $files | grep -x -E 'unaligned|quantize|pack|map|update_rows')
      ;;
    bundle) bundle; continue ;;
    *) $stage ;;
  esac
  archive
done
printf '\n%s' "$summary"
[ $failed -le 100 ] || failed=100
exit $failed
