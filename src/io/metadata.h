// JSON in the metadata of files, and records of codes. Checksums detect accidents, not forgery, so everything that a
// file says about itself is checked against limits before use.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Parses the text under `key`, at most 16 MiB. Throws Error if it is not JSON, nests deeper than `depth`, or repeats a
// key within an object.
Json parse_metadata(const std::string& key, const std::string& text, int depth = 8);

// A whole number in [min, max]; values that would need rounding or wrapping are refused. Errors name `key`.
int64_t whole_number(const Json& value, const std::string& key, int64_t min, int64_t max);
int64_t whole_member(const Json& record, const std::string& key, int64_t min, int64_t max);

// ---- what a file says about its packed codes, as plain data. Only metadata.cpp knows that the format is JSON

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
