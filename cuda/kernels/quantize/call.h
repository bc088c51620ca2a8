// A call of quantize as its kernels receive it: plain values and device pointers.
#pragma once

#include "bitgrad/base/rng.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/pack/octet.h"
#include "kernels/quantize.h"
#include "kernels/quantize/rounding.h"

namespace bitgrad::cuda {

struct QuantizeCall {
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;  // fp32, or bf16
  int64_t ldx = 0;
  CodeRows codes;
  uint8_t* mask = nullptr;  // QuantizeArgs::mask as bytes
  uint32_t* flags = nullptr;
  int32_t* row_sums = nullptr;  // zero-initialized
  ScaleMap scale;
  RandomStream draws;
  int64_t first_element = 0;
  int32_t lo = 0, hi = 0;
  quantize_loops::CodeParts parts = {};
  uint32_t code_mask = 0;
  uint8_t nonfinite_code = 0;
  bool sign = false, stochastic = false, clip = false;
  bool bf16 = false;  // x
  bool wide = false;  // every row of x is aligned to 16 bytes
};

// The levels of a codebook in ascending order and the bounds between them (kernels/quantize/plan.h). Passed by
// value, so that a dtype registered at run time needs no device memory.
struct CodebookLevels {
  float bounds[256];
  uint8_t codes[256];
  int count = 0;  // number of levels
};

// Throws if rule and dtype do not match. Clears the row sums on the current stream.
QuantizeCall quantize_call(const QuantizeArgs& args);
CodebookLevels codebook_levels(DType dtype);

inline bool rows_lie_on_four(const float* data, int64_t stride) { return lies_on<4>(data) && stride % 4 == 0; }

// Elements c .. c + 7 of row r of x, with 0 from `count` on.
BITGRAD_DEVICE inline Numbers8 load_octet_of_x(const QuantizeCall& call, int64_t r, int64_t c, int64_t count) {
  const int64_t at = r * call.ldx + c;
  return call.bf16 ? load_numbers(static_cast<const uint16_t*>(call.x) + at, count, call.wide)
                   : load_numbers(static_cast<const float*>(call.x) + at, count, call.wide);
}

}  // namespace bitgrad::cuda
