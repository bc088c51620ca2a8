// Tensors as GGUF files hold them, in both directions.
//
// A block of ggml has fp16 scales of its own. A tensor of codes keeps its codes; its scales become those of the blocks:
// exact where they are fp16 numbers and each covers whole blocks, else rounded, which gguf_fit says.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/io/gguf.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// What becomes of a tensor that is written as a type.
struct GgufFit {
  enum class Kind : uint8_t { kExact, kRounded, kRefused };
  Kind kind = Kind::kExact;
  double largest_error = 0;  // kRounded: of scales, offsets or floats, relative to each
  std::string why = {};      // kRounded: what is rounded; kRefused: why it cannot be
};

// value = s * q:              Q8_0 int2..int8; Q5_0 int2..int5; Q4_0 int2..int4; TQ1_0, TQ2_0 ternary;
//                             Q2_0 ternary, int2, int1; Q1_0 bint1 (value = s * +-1)
// value = s * q + m:          Q4_1 uint2..uint4, int1; Q5_1 uint2..uint5, int1; integer zero points too, as m = -s * z
// fp32, bf16, fp16, fp64:     F32, F16, BF16, F64
// int32, int64; int8 without scales: I32, I64; I8
// Everything else is refused, as are rows that do not fill blocks, scales that change inside a block, scales and
// offsets that are no fp16 numbers even when rounded (beyond 65504; below 2^-24, but for 0).
GgufFit gguf_fit(const Tensor& tensor, GgufType type);
// The smallest type that holds a tensor without loss, integers as integers; F32 where there is none.
GgufType gguf_type_for(const Tensor& tensor);
// A tensor of 1 to 4 axes, of any device. Throws Error that names it where gguf_fit refuses.
GgufItem gguf_item(const std::string& name, const Tensor& tensor, GgufType type);

// A tensor of a file, on the current device (kind kBuffer): floats and integers as they are (I16 as int32); Q8_0 int8,
// Q5_0 int5, Q5_1 uint5, Q4_0 int4, Q4_1 uint4, TQ1_0 and TQ2_0 ternary, Q2_0 ternary (int2 where a block has the code
// 3), Q1_0 bint1, with scheme `fixed` and a scale (and offset) for each block; Q2_K to Q6_K as fp32. Throws
// Error(kData) for the other types and for codes that a type does not have.
Tensor gguf_tensor(const GgufFile& file, std::string_view name);

}  // namespace bitgrad
