// The tensors of a decoder's file as one family names them, and their places in our parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bitgrad/interop/decoder.h"

namespace bitgrad::interop {

enum class FileFormat : uint8_t { kGguf, kHuggingFace };

// A kind of decoder, as named by llama.cpp and Hugging Face.
struct Family {
  std::string_view name;  // general.architecture of GGUF; model_type of config.json
  bool layer_norm = false, learned_positions = false, sub_norms = false, qkv_bias = false, gated = true;
  bool biases = false;           // files have biases of out, up, down and norms; zeros if the model has none
  bool interleaved = false;      // GGUF: rope rotates neighbours, and rows of q and k are in that order
  bool scale_tensors = false;    // GGUF: the graph multiplies by NAME.scale (checked with llama.cpp)
  bool rope_factors = false;     // GGUF: the graph reads rope_freqs.weight
  bool fused_qkv = false;        // one tensor for q, k and v
  bool untied = true;            // supports a head that is not tied to the embedding
  std::string_view model_class;  // architectures[0] of Hugging Face's config.json
  std::string_view activations_gguf, activations_hf;  // our kinds, separated by spaces
};
const std::vector<Family>& families();
// nullptr if there is none of that name.
const Family* find_family(std::string_view name);
// The family that fits a decoder's structure.
const Family& family_of(const Decoder& decoder);
// Throws Error that names the model's first layer that files of this family cannot express.
void check_fits(const FoundDecoder& found, const Family& family, FileFormat format);

struct MappedTensor {
  std::string name = {};       // in the file
  std::string parameter = {};  // path; empty: the model has none, and the file has zeros
  Shape shape = {};            // of this part of the parameter: [rows, cols], or [n]
  int64_t begin = 0;           // its first row, or element
  bool matrix = false;         // may be codes; others are fp32
  bool transposed = false;     // the file has [cols, rows]
  int64_t heads = 0;           // number of heads whose rows are reordered in the file; 0: none
  bool embedding = false;      // a matrix that is not only the weight of a product
};
// prefix: of the names of Hugging Face but lm_head; the family's own ("transformer.", "model.") if left out.
std::vector<MappedTensor> tensor_map(const FoundDecoder& found, const Family& family, FileFormat format,
                                     std::optional<std::string_view> prefix = {});

}  // namespace bitgrad::interop
