// bitgrad's side of bench_gemm --conv.
#pragma once

#include <functional>
#include <string>

#include "bench_gemm_conv_shapes.h"
#include "bitgrad/ops/ops.h"
#include "shared/measure.h"

namespace bitgrad::bench {

// One product of a convolution of these dtypes: forward images x by weights w; gx, gw the gradient in `mode`.
struct ConvProduct {
  ConvShape shape;
  std::string product;  // forward, gx, gw
  DType x, w;
  ProductMode mode = ProductMode::kFp32;

  DType a() const;  // of the product's operands: forward x, else what the mode makes of gradients
  DType b() const { return product == "gw" ? x : w; }
};

// Whether conv2d takes the mode for these dtypes.
bool takes(const ConvProduct& what);
// conv2d, or one part of its backward, on random operands. Codes of kinds int and uint have a scale per tensor; weights
// lie in the layout that training plans.
Contestant conv_contestant(const ConvProduct& what);
// The windows of the images gathered, or, for gx, sums of windows added into images, without a product: the same
// kernel, in blocks of as many windows. What it does is empty where windows are the pixels.
Contestant conv_moves(const ConvProduct& what);

}  // namespace bitgrad::bench
