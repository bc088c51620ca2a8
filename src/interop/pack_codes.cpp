// Codes in the layout of compressed-tensors, written (interop/hugging_face.h).
#include <algorithm>

#include "bitgrad/base/error.h"
#include "interop/hugging_face.h"

namespace bitgrad::interop {
namespace {

// Columns that share a scale; 0: all of a row.
int64_t group_of_columns(const ScaleMap& map) { return map.col_step == 0 ? 0 : map.col_group; }

// Codes less their zero points: transformers 5.24 refuses files with zero points.
std::vector<int64_t> centred_codes(const Tensor& matrix) {
  const std::vector<double> numbers = matrix.without_quant().elements();
  std::vector<int64_t> codes(numbers.begin(), numbers.end());
  const ScaleMap map = matrix.scale_map();
  if (map.zero == nullptr) return codes;
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] -= map.zero[map.index(static_cast<int64_t>(i) / matrix.cols(), static_cast<int64_t>(i) % matrix.cols())];
  return codes;
}

std::pair<int64_t, int64_t> range_of(const Tensor& matrix) {
  if (matrix.scale_map().zero == nullptr) return {matrix.dtype().info().qmin, matrix.dtype().info().qmax};
  const std::vector<int64_t> codes = centred_codes(matrix);
  if (codes.empty()) return {0, 0};
  const auto [low, high] = std::minmax_element(codes.begin(), codes.end());
  return {*low, *high};
}

}  // namespace

std::optional<CodeScheme> scheme_for(const Tensor& matrix, std::string& why) {
  const DTypeInfo& info = matrix.dtype().info();
  const ScaleMap map = matrix.scale_map();
  const int64_t group = group_of_columns(map);
  if (!matrix.dtype().is_code())
    why = "floats";
  else if (info.kind == DTypeKind::kCodebook)
    why = concat("codes of ", matrix.dtype(), " are levels of a codebook");
  else if (map.offset != nullptr)
    why = "real offsets";
  else if (map.row_group > 1)
    why = "scales of groups of rows";
  else if (group != 0 && matrix.cols() % group != 0)
    why = concat("groups of ", group, " columns do not divide ", matrix.cols());
  if (!why.empty()) return std::nullopt;
  const auto [low, high] = range_of(matrix);
  for (const int bits : {2, 4, 8}) {
    const int64_t half = int64_t{1} << (bits - 1);
    if (low >= -half && high < half) return CodeScheme{.bits = bits, .group = group};
  }
  why =
      concat("codes ", low, " to ", high, map.zero == nullptr ? "" : " from the zero point", " need more than 8 bits");
  return std::nullopt;
}

std::vector<int32_t> packed_rows(const std::vector<int64_t>& codes, int64_t rows, int64_t cols, int bits,
                                 int64_t offset) {
  const int64_t words = (cols * bits + 31) / 32;
  std::vector<uint32_t> out(static_cast<size_t>(rows * words), 0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const auto raw = static_cast<uint32_t>(codes[static_cast<size_t>(r * cols + c)] + offset);
      const auto at = static_cast<size_t>(r * words + c * bits / 32);
      const int64_t shift = c * bits % 32;
      out[at] |= raw << shift;
      if (shift + bits > 32) out[at + 1] |= raw >> (32 - shift);
    }
  return {out.begin(), out.end()};
}

PackedCodes pack_codes(const Tensor& matrix, const CodeScheme& scheme) {
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  const ScaleMap map = matrix.scale_map();
  PackedCodes out;
  out.row_words = (cols * scheme.bits + 31) / 32;
  out.groups = scheme.group == 0 ? 1 : cols / scheme.group;
  out.words = packed_rows(centred_codes(matrix), rows, cols, scheme.bits, int64_t{1} << (scheme.bits - 1));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < out.groups; ++g)
      out.scales.push_back(map.scale == nullptr ? 1.0f : map.scale[map.index(r, g * scheme.group)]);
  return out;
}

}  // namespace bitgrad::interop
