// bench_gemm --conv: the products of convolutions, compared with oneDNN.
#pragma once

#include "bench_gemm_options.h"

namespace bitgrad::bench {

// For each shape and product, measures alternately: conv2d for every pair of dtypes (A x B: images by weights; gx:
// gradients by weights; gw: gradients by images, gradients in the dtype of --grad), its window moves alone (gathering
// all windows, or for gx adding all sums back into images), and oneDNN. The whole op is timed: rounding of gradients,
// packing, moves and product, but not the packing of weights, which training does once per step. int8 gradients are
// rounded stochastically. Rivals: onednn_f32 and onednn_bf16 with all operands in oneDNN's preferred formats (reorders
// are not timed); onednn_f32_nhwc and onednn_bf16_nhwc with NHWC images, as in bitgrad. Returns 0, or 1 if --compare
// found a loss.
int run_conv(const Options& options);

// The values of --rivals that apply to --conv.
std::vector<std::string> conv_rival_ids();

}  // namespace bitgrad::bench
