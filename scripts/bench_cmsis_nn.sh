#!/bin/bash
# Instructions of ResNet-8 (MLPerf Tiny) of int8 codes in one run: the C file of `bitgrad export` beside the kernels of CMSIS-NN:
#   git clone https://github.com/ARM-software/CMSIS-NN && scripts/bench_cmsis_nn.sh CMSIS-NN resnet8.c
# The kernels have drawn weights and the shapes of that network: their instructions do not depend on the weights but for
# clamps. Same compiler, flags, emulator and samples (scripts/run_on_cortex.sh; $CFLAGS, such as
# -O3, is of both). Instructions are not cycles.
set -euo pipefail
[ $# -eq 2 ] && [ -f "$1/Include/arm_nnfunctions.h" ] && [ -f "$2" ] ||
  { echo "bench_cmsis_nn: expected a folder of CMSIS-NN and a C file. Usage: scripts/bench_cmsis_nn.sh CMSIS-NN resnet8.c" >&2; exit 2; }
kernels=$(cd "$1" && pwd) ours=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/cmsis.h" <<'C'
#include <stdint.h>
enum { cmsis_inputs = 3072, cmsis_outputs = 10 };
typedef int8_t cmsis_input;
typedef int8_t cmsis_output;
void cmsis_predict(const int8_t *in, int8_t *out);
C
{
  echo '#include "cmsis.h"'
  for f in ConvolutionFunctions/arm_convolve_{wrapper_s8,s8,1x1_s8,1x1_s8_fast,1_x_n_s8,get_buffer_sizes_s8} \
    ConvolutionFunctions/arm_nn_mat_mult_{kernel_s8_s16,kernel_row_offset_s8_s16,s8} \
    NNSupportFunctions/arm_{nn_mat_mult_nt_t_s8,s8_to_s16_unordered_with_offset,nn_mat_mul_core_1x_s8,nn_mat_mul_core_4x_s8,q7_to_q15_with_offset} \
    NNSupportFunctions/arm_nn_vec_mat_mult_t_s8 FullyConnectedFunctions/arm_fully_connected_s8 \
    BasicMathFunctions/arm_elementwise_add_s8 PoolingFunctions/arm_avgpool{,_get_buffer_sizes}_s8; do
    [ ! -f "$kernels/Source/$f.c" ] || echo "#include \"$kernels/Source/$f.c\""
  done
  awk 'BEGIN {
    printf "static const int8_t weights[77400] = {"; x = 1
    for (i = 0; i < 77400; ++i) { x = (x * 16807) % 2147483647; printf "%s%d", i % 32 ? "," : (i ? ",\n" : "\n"), int(x / 4096) % 127 - 63 }
    print "};"
  }'
  cat <<'C'
static const int32_t zeros[64];
static int32_t factors[64], shifts[64];
static int8_t a[16384], b[16384], c[16384], scratch[8192];
static const int8_t *next;

/* An image [h, h, n] by o windows of k x k, stride s. Codes of inputs begin at -128. */
static void conv(const int8_t *in, int h, int n, int o, int k, int s, int shift, int zero, int8_t *out) {
  const cmsis_nn_context context = {scratch, sizeof scratch};
  const int pad = k == 3 && s == 1;
  const cmsis_nn_conv_params params = {128, zero, {s, s}, {pad, pad}, {1, 1}, {-128, 127}};
  const cmsis_nn_per_channel_quant_params scales = {factors, shifts};
  const cmsis_nn_dims from = {1, h, h, n}, filter = {o, k, k, n}, bias = {1, 1, 1, o}, to = {1, h / s, h / s, o};
  int i;
  for (i = 0; i < o; ++i) factors[i] = 0x40000000, shifts[i] = shift;
  if (arm_convolve_wrapper_s8(&context, &params, &scales, &from, in, &filter, next, &bias, zeros, &to, out) != 0)
    for (;;) {}
  next += o * k * k * n;
}
static void add(const int8_t *x, const int8_t *y, int8_t *out, int n) {
  arm_elementwise_add_s8(x, y, 128, 0x40000000, 0, -5, 0x40000000, 0, 20, out, -128, 0x40000000, -18, -128, 127, n);
}

void cmsis_predict(const int8_t *in, int8_t *out) {
  const cmsis_nn_context context = {scratch, sizeof scratch};
  const cmsis_nn_dims image = {1, 8, 8, 64}, one = {1, 1, 1, 64}, vector = {64, 1, 1, 10}, row = {1, 1, 1, 10};
  const cmsis_nn_pool_params mean = {{1, 1}, {0, 0}, {-128, 127}};
  const cmsis_nn_fc_params dense = {128, 0, 0, {-128, 127}};
  const cmsis_nn_per_tensor_quant_params scale = {0x40000000, -9};
  next = weights;
  conv(in, 32, 3, 16, 3, 1, -9, -128, a);
  conv(a, 32, 16, 16, 3, 1, -10, -128, b);
  conv(b, 32, 16, 16, 3, 1, -10, 5, c);
  add(a, c, a, 16384);
  conv(a, 32, 16, 32, 3, 2, -10, -128, b);
  conv(b, 16, 32, 32, 3, 1, -10, 5, c);
  conv(a, 32, 16, 32, 1, 2, -8, 5, b);
  add(b, c, a, 8192);
  conv(a, 16, 32, 64, 3, 2, -10, -128, b);
  conv(b, 8, 64, 64, 3, 1, -11, 5, c);
  conv(a, 16, 32, 64, 1, 2, -8, 5, b);
  add(b, c, a, 4096);
  if (arm_avgpool_s8(&context, &mean, &image, a, &image, &one, b) != 0) for (;;) {}
  if (arm_fully_connected_s8(&context, &dense, &scale, &one, b, &vector, next, &row, zeros, &row, out) != 0) for (;;) {}
}
C
} >"$work/cmsis.c"

instructions() { sed -n 's/^instructions of a sample: \([0-9]*\);.*/\1/p' <<<"$1"; }
for cpu in cortex-m3 cortex-m4 cortex-m7; do
  theirs_said=$(CFLAGS="${CFLAGS:-} -I$kernels/Include" "$here/run_on_cortex.sh" "$work/cmsis.c" "$cpu" 5)
  ours_said=$("$here/run_on_cortex.sh" "$ours" "$cpu" 5)
  theirs=$(instructions "$theirs_said") mine=$(instructions "$ours_said")
  awk -v c="$cpu" -v a="$mine" -v b="$theirs" 'BEGIN {printf "%s: %.2f million instructions, CMSIS-NN %.2f million: %.2f times\n", c, a / 1e6, b / 1e6, a / b}'
done
