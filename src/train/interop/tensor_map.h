// The tensors of a decoder's file in one family's naming, and where each lies in our parameters.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/train/decoder.h"

namespace bitgrad::interop {

enum class FileFormat : uint8_t { kGguf, kHuggingFace };

// What llama.cpp and Hugging Face call a decoder of one kind.
struct Family {
  std::string_view name;  // general.architecture of GGUF; model_type of config.json
  bool layer_norm = false, learned_positions = false, sub_norms = false, qkv_bias = false, gated = true;
  bool biases = false;           // out, up, down and norms have one too, and files must hold them: zeros
  bool interleaved = false;      // GGUF: rope turns neighbours, so rows of q and k are in that order
  bool scale_tensors = false;    // GGUF: a graph that multiplies by NAME.scale (checked against the client)
  bool fused_qkv = false;        // one tensor for q, k and v
  bool untied = true;            // a head of its own is read
  std::string_view model_class;  // of Hugging Face's config.json: architectures[0]
  std::string_view activations_gguf, activations_hf;  // our kinds, separated by spaces
};
const std::vector<Family>& families();
// nullptr: none of that name.
const Family* find_family(std::string_view name);
// The one that a decoder's structure asks for.
const Family& family_of(const Decoder& decoder);
// Throws Error that names the first layer of the model which files of this family cannot say.
void check_fits(const FoundDecoder& found, const Family& family, FileFormat format);

struct MappedTensor {
  std::string name = {};       // in the file
  std::string parameter = {};  // its path; empty: the model has none, the file holds zeros
  Shape shape = {};            // of this part of the parameter: [rows, cols], or [n]
  int64_t begin = 0;           // its first row, or number
  bool matrix = false;         // may be codes; the others are fp32
  bool transposed = false;     // the file has [cols, rows]
  int64_t heads = 0;           // the rows of so many heads are in another order in the file; 0: in the same
  bool embedding = false;      // a matrix, but no weight of a product alone
};
// prefix: of Hugging Face's gpt2, "transformer." or "".
std::vector<MappedTensor> tensor_map(const FoundDecoder& found, const Family& family, FileFormat format,
                                     std::string_view prefix = "transformer.");

}  // namespace bitgrad::interop
