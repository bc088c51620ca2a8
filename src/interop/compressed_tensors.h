// Weights as integer codes in a folder of Hugging Face, in the layout of the package compressed-tensors
// (github.com/vllm-project/compressed-tensors), which transformers and vLLM open. A weight W is stored as
//   W_packed I32 [rows, ceil(cols * bits / 32)]  code + 2^(bits - 1), rows of bits from the low end on
//   (pack-quantized), or W I8 [rows, cols]                         (int-quantized, naive-quantized) W_shape I64 [2],
//   W_scale [rows, groups], and W_zero_point if the codes are not symmetric: packed down the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/tensor/tensor.h"
#include "interop/hugging_face_files.h"

namespace bitgrad::interop {

// config_groups.NAME of quantization_config.
struct CodeScheme {
  int bits = 8;
  bool symmetric = true;
  int64_t group = 0;                         // columns that share a scale; 0: all of a row
  bool packed = true;                        // as W_packed
  std::vector<std::string> targets = {};     // names of modules, "re:" and a pattern, or a class: Linear
  bool operator==(const CodeScheme&) const;  // apart from the targets
};

// Throws Error that names what is not read: formats of floats, inputs of few bits, caches of few bits, reordered
// columns.
std::vector<CodeScheme> parse_code_schemes(const Json& quantization_config);
Json code_schemes_json(const std::vector<CodeScheme>& schemes);

// Whether the files hold this weight as codes.
bool holds_codes(const HuggingFaceFiles& files, const std::string& weight);
// The scheme whose targets name the module of the weight. Throws Error(kData) if none does.
const CodeScheme& scheme_of_weight(const std::vector<CodeScheme>& schemes, const std::string& weight);
// The names of its tensors that the files have.
std::vector<std::string> code_tensors(const HuggingFaceFiles& files, const std::string& weight);
// What is wrong with them, a line each; empty if nothing is.
std::string wrong_with_codes(const HuggingFaceFiles& files, const std::string& weight, const Shape& shape,
                             const CodeScheme& scheme);
// intN, or uintN with zero points. Requires that nothing is wrong.
Tensor read_codes(const HuggingFaceFiles& files, const std::string& weight, const Shape& shape,
                  const CodeScheme& scheme);

// The scheme that holds a matrix exactly (no targets): symmetric, of 2, 4 or 8 bits, which all versions of the package
// agree on. nullopt, and `why`, if there is none.
std::optional<CodeScheme> scheme_for(const Tensor& matrix, std::string& why);
// What is written for it, in row order.
struct PackedCodes {
  std::vector<int32_t> words = {};
  std::vector<float> scales = {};
  int64_t row_words = 0, groups = 1;
};
PackedCodes pack_codes(const Tensor& matrix, const CodeScheme& scheme);
// Rows of codes of few bits, `offset` added to each, as words.
std::vector<int32_t> packed_rows(const std::vector<int64_t>& codes, int64_t rows, int64_t cols, int bits,
                                 int64_t offset);

}  // namespace bitgrad::interop
