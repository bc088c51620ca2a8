// C code of the loops that exported models call.
#pragma once

#include <string>

#include "export/c_plan.h"

namespace bitgrad::c_target {

// How weights are stored: INT8 and UINT8 arrays, codes of `bits` bits in 32-bit words, or rows of signs for popcounts.
struct WeightForm {
  Held held = Held::kInt8;  // kFloat, kInt8, kUint8, kBits (rows of whole words), kInt32: packed words
  int bits = 8;             // for kInt32
  enum class Code : uint8_t { kSigned, kUnsigned, kSign } code = Code::kSigned;
};

// Everything before the functions: includes, and guards against contracted or wider arithmetic.
std::string c_head(const std::string& header);
// Definitions of struct conv, popcount and rounding.
std::string c_common(bool popcount, bool rounds);
// `static int32_t|float dot_NAME(...)` computes one sum of a product: output channel j of pixel p. dot_name returns
// NAME.
std::string dot_name(Held x, const WeightForm& w);
std::string dot_function(Held x, const WeightForm& w);
std::string type_of(Held held);  // "float", "int8_t", ...

}  // namespace bitgrad::c_target
