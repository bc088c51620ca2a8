// Conversion between Tensor and the tensor types of GGUF files.
//
// ggml stores fp16 scales per block. A tensor of codes keeps its codes; its scales become block scales. The result is
// exact if the scales are representable in fp16 and each covers whole blocks; otherwise they are rounded, which
// gguf_fit reports.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/io/gguf.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// How well a tensor can be stored as a given type.
struct GgufFit {
  enum class Kind : uint8_t { kExact, kRounded, kRefused };
  Kind kind = Kind::kExact;
  double largest_error = 0;  // kRounded: largest relative error of a scale, offset or float
  std::string why = {};      // kRounded: what is rounded; kRefused: the reason
};

// value = s * q:              Q8_0 int2..int8; Q5_0 int2..int5; Q4_0 int2..int4; TQ1_0, TQ2_0 ternary;
//                             Q2_0 ternary, int2, int1; Q1_0 bint1 (value = s * +-1)
// value = s * q + m:          Q4_1 uint2..uint4, int1; Q5_1 uint2..uint5, int1; integer zero points too, as m = -s * z
// fp32, bf16, fp16, fp64:     F32, F16, BF16, F64
// int32, int64; int8 without scales: I32, I64; I8
// Everything else is refused, as are rows that do not fill whole blocks, scales that change within a block, and scales
// or offsets outside the range of fp16 (above 65504; below 2^-24 and not 0).
GgufFit gguf_fit(const Tensor& tensor, GgufType type);
// Returns the smallest type that stores the tensor without loss, integers as integers; F32 if there is none.
GgufType gguf_type_for(const Tensor& tensor);
// Converts a tensor of 1 to 4 axes from any device. Throws Error that names the tensor if gguf_fit refuses it.
GgufItem gguf_item(const std::string& name, const Tensor& tensor, GgufType type);

// Reads a tensor onto the current device (kind kBuffer). Floats and integers are loaded as such (I16 as int32). Q8_0
// becomes int8, Q5_0 int5, Q5_1 uint5, Q4_0 int4, Q4_1 uint4, TQ1_0 and TQ2_0 ternary, Q2_0 ternary (int2 if a block
// contains code 3) and Q1_0 bint1, each with scheme `fixed` and one scale (and offset) per block; Q2_K to Q6_K are
// dequantized to fp32. Throws Error(kData) for other types and for codes that a type does not define.
Tensor gguf_tensor(const GgufFile& file, std::string_view name);

}  // namespace bitgrad
