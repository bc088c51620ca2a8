// What the metadata of a file say of its packed codes, as plain data; codes_record.cpp alone knows that it is JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// The metadata key of the records, the end of the name of a tensor of codes, and those of its quantization parameters.
inline constexpr std::string_view kCodesKey = "bitgrad.tensors", kCodesEnd = ".codes";
inline constexpr std::string_view kScaleEnd = ".scale", kZeroEnd = ".zero", kOffsetEnd = ".offset",
                                  kStatisticEnd = ".statistic";

// How the codes of one tensor are to be read.
struct CodesRecord {
  DType dtype;
  Shape shape;
  std::string scheme;
  Granularity granularity;
};
// Of a tensor of codes; bare codes have no scheme.
CodesRecord codes_record(const Tensor& codes);

// By the names of the tensors ("<name>.codes"), in their order.
using CodesRecords = std::vector<std::pair<std::string, CodesRecord>>;
std::string codes_records_text(const CodesRecords& records);
// Registers the dtypes that the text brings along. Throws Error for text of another form, a granularity that is none,
// and another dtype under a known name.
CodesRecords parse_codes_records(const std::string& text);

// What is wrong with canonical codes on the CPU that came from outside: a code out of the dtype's range, or bits that
// are set after the last code of a row. Kernels would read both as other numbers. Empty: nothing.
std::string wrong_codes(const Tensor& codes);

}  // namespace bitgrad::detail
