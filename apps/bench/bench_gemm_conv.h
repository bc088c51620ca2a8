// bench_gemm --conv: the products of convolutions, beside oneDNN's.
#pragma once

#include "bench_gemm_options.h"

namespace bitgrad::bench {

// For each shape and product, in turns: what conv2d does for every pair of dtypes (A x B: images by weights; gx:
// gradients by weights; gw: gradients by images, gradients in the dtype of --grad), the move of its windows alone (all
// windows gathered, or for gx all sums added back into images) and oneDNN. A whole op is timed: rounding of gradients,
// packing, moves and product, but not the packing of weights, which training does once a step. int8 gradients are
// rounded stochastically. Rivals: onednn_f32, onednn_bf16 with all operands in the formats that oneDNN likes best
// (bringing them there is not timed); onednn_f32_nhwc, onednn_bf16_nhwc with images as NHWC, as ours. 0: all is well;
// 1: --compare found a loss.
int run_conv(const Options& options);

// Of --rivals, with --conv.
std::vector<std::string> conv_rival_ids();

}  // namespace bitgrad::bench
