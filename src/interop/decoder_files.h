// A decoder in files of both formats: activations, scaling of positions, families with their names of tensors, and the
// places of these in our parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::interop {

// ---- activations of feed-forward layers: bitgrad's kinds and the names in Hugging Face's configurations

// nullopt: this kind is no activation of a decoder.
std::optional<bool> activation_is_gated(std::string_view kind);
// The kind for a hidden_act or activation_function; empty if there is none.
std::string activation_kind(std::string_view hidden_act, bool gated);
// The inverse.
std::string hidden_act(std::string_view kind);

// ---- kinds of blocks, in turn

// The shortest list that gives `kinds` when it is repeated.
std::vector<BlockKind> shortest_cycle(const std::vector<BlockKind>& kinds);
// Each `interval`th of so many blocks without positions.
std::vector<BlockKind> kinds_without_rope(int64_t blocks, int64_t interval);

// ---- scale of attention

// The factor of q k, also where it is the usual one.
double used_attention_scale(const Decoder& decoder);
// query_pre_attn_scalar, whose inverse root it is, if it is of a whole number.
int64_t query_scalar(const Decoder& decoder);

// ---- scaling of rotary positions

inline constexpr std::string_view kLinearScaling = "linear";  // its name in the files of both formats

// Linear scaling (all frequencies divided by a factor) as RopeOptions says it: no wavelength, which is at least 2 pi,
// is below `original` / `low`.
inline void scale_linear(RopeOptions& rope, double factor) {
  rope.factor = factor;
  if (factor != 1) rope.low = 1, rope.high = 4, rope.original = 1;
}
inline bool scales_linear(const RopeOptions& rope) {
  constexpr double kShortest = 6.28;  // below 2 pi
  return rope.factor != 1 && static_cast<double>(rope.original) < kShortest * rope.low;
}

inline constexpr std::string_view kRopeFactors = "rope_freqs.weight";  // GGUF: what each frequency is divided by
// Those of Llama 3.1's scaling (ggml-org/llama.cpp, convert_hf_to_gguf.py), one for each pair of a head.
std::vector<float> rope_factors(const RopeOptions& rope);
// The inverse: sets factor, low, high and original of `rope`, whose dim and base are those of the file. False if no
// scaling of this kind has these factors.
bool read_rope_factors(std::span<const float> factors, RopeOptions& rope);

enum class FileFormat : uint8_t { kGguf, kHuggingFace };

// Whether `word` is one of the words of a list by spaces.
bool has_word(std::string_view words, std::string_view word);

// A kind of decoder, as named by llama.cpp and Hugging Face.
struct Family {
  std::string_view name;             // general.architecture of GGUF; model_type of config.json
  std::string_view arch = {};        // general.architecture, if it is not `name`: that of another family
  std::string_view model_type = {};  // of config.json, if it is not `name`
  std::string_view model_class;      // architectures[0] of config.json

  // Layers, as in Decoder.
  bool layer_norm = false, learned_positions = false, sub_norms = false, qkv_bias = false, gated = true;
  bool biases = false;     // files have biases of out, up, down and norms; zeros if the model has none
  bool fused_qkv = false;  // one tensor for q, k and v
  bool untied = true;      // supports a head that is not tied to the embedding
  std::string_view qk_norm = "none";
  bool pre_norms = true, post_norms = false;
  bool norm_offset = false;       // Hugging Face: files have gamma - 1
  bool scaled_embedding = false;  // embedding_scale is sqrt(dim)
  bool multipliers = false;       // scales of embedding, attention, residual and head are numbers of the file
  bool query_scalar = false;      // Hugging Face: query_pre_attn_scalar says the scale of attention
  bool softcaps = false;          // Hugging Face: has attn_logit_softcapping and final_logit_softcapping
  // Kinds of blocks that it has beside full ones. Of a file that does not say them, every `cycle`th is full (local) or
  // without positions (no_rope); cycle 0: all are local.
  bool local = false, no_rope = false;
  int64_t cycle = 0;
  bool cycle_key = false;  // Hugging Face: sliding_window_pattern says another cycle

  // What a configuration of Hugging Face means that does not say it; 0: see behind it.
  int64_t kv_heads = 0, head_dim = 0;  // num_attention_heads; hidden_size over heads
  double rope = 10000, eps = 1e-6;
  double local_rope = 10000;                        // 0: that of full blocks. Of GGUF, too
  int64_t window = 0;                               // must be said. Of GGUF, too
  double attention_softcap = 0, logit_softcap = 0;  // none. Of GGUF, too
  bool tied = false;
  std::string_view activation_key = "hidden_act";

  // The graph of llama.cpp.
  bool interleaved = false;       // rope rotates neighbours, and rows of q and k are in that order
  bool scale_tensors = false;     // it multiplies by NAME.scale (checked with llama.cpp)
  bool rope_factors = false;      // it reads rope_freqs.weight
  bool own_head = false;          // it asks for output.weight
  bool square = false;            // heads have to fill the features of a row
  bool caps_attention = false;    // scores of attention always have a cap, and logits too. Hugging Face: may have one
  int64_t dim_scaled_blocks = 0;  // of so many blocks, attention_scale is sqrt(heads / dim)

  std::string_view activations_gguf, activations_hf;  // our kinds, separated by spaces
  // GGUF: those that only some versions of llama.cpp compute, which read NAME.hidden_activation. Not empty: it is
  // written.
  std::string_view activations_newer = {};
};
const std::vector<Family>& families();
// nullptr if there is none of that name.
const Family* find_family(std::string_view name);
// By general.architecture of GGUF: the first one.
const Family* find_arch(std::string_view name);
// By model_type of config.json.
const Family* find_model_type(std::string_view name);
inline std::string_view arch(const Family& f) { return f.arch.empty() ? f.name : f.arch; }
inline std::string_view model_type(const Family& f) { return f.model_type.empty() ? f.name : f.model_type; }
// The family of this name, or if it is empty, the one that fits the decoder's structure. Throws Error for another name.
const Family& chosen_family(const std::string& name, const Decoder& decoder);
// Throws Error that names the model's first layer that files of this family cannot express. newer: the file is for
// versions of the program that know Family::activations_newer.
void check_fits(const FoundDecoder& found, const Family& family, FileFormat format, bool newer = false);

struct MappedTensor {
  std::string name = {};       // in the file
  std::string parameter = {};  // path; empty: the model has none, and the file has zeros
  Shape shape = {};            // of this part of the parameter: [rows, cols], or [n]
  int64_t begin = 0;           // its first row, or element
  bool matrix = false;         // may be codes; others are fp32
  bool transposed = false;     // the file has [cols, rows]
  int64_t heads = 0;           // number of heads whose rows are reordered in the file; 0: none
  bool embedding = false;      // a matrix that is not only the weight of a product
  double offset = 0;           // values of the parameter less those in the file
};
// prefix: of the names of Hugging Face but lm_head; the family's own ("transformer.", "model.") if left out.
std::vector<MappedTensor> tensor_map(const FoundDecoder& found, const Family& family, FileFormat format,
                                     std::optional<std::string_view> prefix = {});

// ---- rows of matrices, reordered and stacked: codes move with their scales, and nothing is rounded

// Columns of a matrix that share a scale; 0: all of a row.
int64_t group_of(const Tensor& matrix);
// For each row 0 .. rows - 1 of the file's tensor, the row of the parameter. interleaved: rope rotates neighbours (2i,
// 2i + 1) of a head in the file and halves (i, i + d/2) in the model; otherwise the other way round. If no heads are
// reordered: begin, begin + 1, ...
std::vector<int64_t> rows_in_file(const MappedTensor& mapped, bool interleaved);

// A new CPU tensor of these rows of a matrix, or elements of a vector. Scales that are not per tensor become scales per
// row, or per group along a row.
Tensor take_rows(const Tensor& matrix, std::span<const int64_t> rows);
// Stacks matrices of one dtype and width in this order. Scales are as coarse as possible: a single one if all are
// equal, one per row if those within each row are, otherwise per group.
Tensor stack_rows(const std::vector<Tensor>& parts);
// Turns parts that are not of one type (dtype, with or without offsets or zero points) into fp32. Whether it did.
bool as_one_type(std::vector<Tensor>& parts);
// The parameters that the tensors of a file make, each of its parts in the order of rows, which `read` gives in ours.
// coarse: of a single part too, as stack_rows. `notes` say which became fp32.
std::vector<std::pair<std::string, Tensor>> read_parameters(const std::vector<MappedTensor>& mapped,
                                                            const std::function<Tensor(const MappedTensor&)>& read,
                                                            bool coarse, std::vector<std::string>& notes);
// The inverse of a permutation of 0 .. n - 1: undoes take_rows in that order.
std::vector<int64_t> inverse_order(std::span<const int64_t> order);

// The same codes with scales and offsets rounded to fp16.
Tensor with_fp16_scales(const Tensor& codes);
// The same codes with scales and offsets multiplied by a factor.
Tensor with_scales_times(const Tensor& codes, float factor);

// Parameters by path, and the quantization of layers that own weights.
class ModelValues {
 public:
  // Throws Error for a model that is not initialized, has adapters, or has quantization switched off.
  explicit ModelValues(Module& model);
  // The values of a mapped tensor, rows in file order; zeros if the model has none.
  Tensor part(const MappedTensor& mapped, bool interleaved) const;
  // The line of a report for the tensor: zeros if the model has none; refused if a program that rounds inputs to 8 bits
  // would compute its product differently.
  ExportedTensor row(const MappedTensor& mapped) const;

 private:
  std::string input_refusal(const MappedTensor& mapped) const;  // empty: none
  std::map<std::string, Parameter*> parameters_;
  std::map<std::string, LayerQuant> slots_;  // by path of the weight
};

// What to do about tensors that these files do not hold.
inline constexpr std::string_view kRefusedHint =
    "\nRows in groups of 32 with scale_dtype: fp16 fit all types of few bits.";

}  // namespace bitgrad::interop
