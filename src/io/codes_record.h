// Metadata of a file about its packed codes, as plain data. Only codes_record.cpp knows that the format is JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// The metadata key of the records, and the name suffixes of codes and of their quantization parameters.
inline constexpr std::string_view kCodesKey = "bitgrad.tensors", kCodesEnd = ".codes";
inline constexpr std::string_view kScaleEnd = ".scale", kZeroEnd = ".zero", kOffsetEnd = ".offset",
                                  kStatisticEnd = ".statistic";

// How to interpret the codes of one tensor.
struct CodesRecord {
  DType dtype;
  Shape shape;
  std::string scheme;
  Granularity granularity;
};
// The record of a tensor of codes; codes without scales have no scheme.
CodesRecord codes_record(const Tensor& codes);

// Keyed by tensor name ("<name>.codes"), in order.
using CodesRecords = std::vector<std::pair<std::string, CodesRecord>>;
std::string codes_records_text(const CodesRecords& records);
// Registers dtypes that the text defines. Throws Error for malformed text, an invalid granularity, and a known dtype
// name with a different record.
CodesRecords parse_codes_records(const std::string& text);

// Checks canonical codes on the CPU that come from outside. Returns the error, or an empty text: a code out of the
// dtype's range, or bits set after the last code of a row (kernels would misread both).
std::string wrong_codes(const Tensor& codes);

}  // namespace bitgrad::detail
