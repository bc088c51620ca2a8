// bitgrad's side of bench_gemm --conv.
#pragma once

#include <functional>
#include <string>

#include "bench_gemm_conv_shapes.h"
#include "bitgrad/ops/ops.h"
#include "shared/measure.h"

namespace bitgrad::bench {

// One product of a convolution of these dtypes. forward: images x by weights w; gx and gw: the gradient in `mode`.
struct ConvProduct {
  ConvShape shape;
  std::string product;  // forward, gx, gw
  DType x, w;
  ProductMode mode = ProductMode::kFp32;

  DType a() const;  // operand dtypes of the product; a(): x in forward, else the dtype of gradients in the mode
  DType b() const { return product == "gw" ? x : w; }
};

// Whether conv2d supports the mode for these dtypes.
bool takes(const ConvProduct& what);
// conv2d, or one part of its backward pass, on random operands. Codes of kinds int and uint have one scale per tensor.
// Weights are in the layout that training plans.
Contestant conv_contestant(const ConvProduct& what);
// The moves of the op without its product, by the same kernel in blocks of as many windows: gathers the windows of the
// images, or for gx adds sums of windows into images. A no-op where windows are the pixels themselves.
Contestant conv_moves(const ConvProduct& what);

}  // namespace bitgrad::bench
