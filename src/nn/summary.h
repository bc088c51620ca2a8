// Texts and sizes of a layer's weight, for the tables of a model.
#pragma once

#include <string>

#include "bitgrad/nn/quantizable.h"

namespace bitgrad::detail {

// E.g. "int4 symmetric group(32)", "fp32", "bint1 binary tensor (off)".
std::string weight_text(const Quantizable& slot);
// E.g. "int8 affine token", "as is".
std::string input_text(const Quantizable& slot);
// Bytes of codes and scales, or of float values, as in a file.
int64_t file_bytes(const Parameter& weight);

}  // namespace bitgrad::detail
