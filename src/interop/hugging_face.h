// A folder of Hugging Face: model.safetensors, or the shards listed in model.safetensors.index.json; codes;
// config.json; the files about texts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/tensor/tensor.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {

// Maps tensors to files, from the weight_map of an index. Throws Error(kData) for malformed text, and for file names
// that are not directly in the folder.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text, const std::string& where);

class HuggingFaceFiles {
 public:
  // Opens a folder, an index of shards (*.index.json) or a single .safetensors file. Throws Error(kData) for missing or
  // damaged files, and for a tensor that is in two files or not in the one that the index names.
  explicit HuggingFaceFiles(const std::string& path);

  bool contains(const std::string& name) const { return place_.count(name) > 0; }
  const SafetensorsEntry& entry(const std::string& name) const { return file_of(name).entry(name); }
  const uint8_t* data(const std::string& name) const { return file_of(name).data(name); }
  std::vector<std::string> names() const;
  const std::vector<std::string>& read() const { return read_; }      // files
  const std::vector<std::string>& unused() const { return unused_; }  // files that say what is not so
  // fp32 values of F32, F16, BF16 or F64, in the tensor's own shape. Throws Error(kData) for NaN and Inf.
  Tensor floats(const std::string& name) const;
  // The same, but F16 and BF16 as they are.
  Tensor stored_floats(const std::string& name) const;
  // Codes of BitNet's packed form [rows / 4, cols]: row i*rows/4 + r is in bits 2i of row r, as code + 1. No scales.
  Tensor ternary(const std::string& name) const;

 private:
  // Of a tensor of floats; throws Error(kData) unless it is finite.
  float number(const SafetensorsEntry& e, const uint8_t* bytes, int64_t i) const;
  const SafetensorsFile& file_of(const std::string& name) const { return files_[place_.at(name)]; }
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> place_;
  std::vector<std::string> read_, unused_;
};
// Whether floats() supports the dtype.
bool is_float_type(const std::string& dtype);
// The inverse of ternary(), for codes [rows, cols]; rows must be a multiple of 4.
std::vector<uint8_t> packed_ternary(const Tensor& codes);

// Weights as integer codes in a folder of Hugging Face, in the layout of the package compressed-tensors
// (github.com/vllm-project/compressed-tensors), which transformers and vLLM open. A weight W is stored as
//   W_packed I32 [rows, ceil(cols * bits / 32)]  code + 2^(bits - 1), rows of bits from the low end on
//   (pack-quantized), or W I8 [rows, cols]                         (int-quantized, naive-quantized) W_shape I64 [2],
//   W_scale [rows, groups], and W_zero_point if the codes are not symmetric: packed down the rows.

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

// ---- config.json as the numbers of a decoder, and back

// How the linear weights are stored.
enum class HuggingFaceWeights : uint8_t {
  kFloats,
  kTernary,         // BitNet, packed: products are multiplied by weight_scale (linear_class autobitlinear)
  kTernaryDivided,  // products are divided by it (linear_class bitlinear)
};

struct HuggingFaceConfig {
  const Family* family = nullptr;
  Decoder decoder = {};
  HuggingFaceWeights weights = HuggingFaceWeights::kFloats;
  std::vector<CodeScheme> schemes = {};             // of compressed-tensors; empty: none
  std::vector<std::string> read = {}, unused = {};  // keys of config.json
};

// Parses the text of a config.json, which is untrusted: numbers are checked against limits. Throws Error(kData) that
// names the key. `where`: the path, for errors.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& where);
// The inverse. ends: ids that end a text.
Json hugging_face_config(const HuggingFaceConfig& config, const std::vector<int32_t>& ends, const ModelOrigin& origin);

// ---- the files that say how texts begin and end, and back

// From config.json, generation_config.json (which counts first), tokenizer_config.json and tokenizer.json. Throws
// Error(kData) for damaged ones.
// `notes` get what is guessed, left out, or said differently by two files.
ModelOrigin origin_of_folder(const std::string& folder, std::vector<std::string>& notes);
// Writes generation_config.json, chat_template.jinja if there is a template, and tokenizer_config.json for a tokenizer
// of the kind bpe. Of several templates, which the latter holds, the former is the default one, for other kinds alone.
void write_origin(const std::string& folder, const ModelOrigin& origin, const Tokenizer* tokenizer);

}  // namespace bitgrad::interop
