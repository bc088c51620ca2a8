// Models in files of other programs: GGUF (llama.cpp) and Hugging Face folders (safetensors and config.json). They are
// described by a Decoder (interop/decoder.h). docs/interop.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/config/weight_name.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

struct InitFrom;  // checkpoint/checkpoint.h

// What an export is asked for, and what it wrote of each tensor and layer and lost.

struct ExportSpec {
  std::string family = {};  // empty: chosen by the model's structure
  // gguf. "newer": only for a llama.cpp that reads key hidden_activation in models of bitnet. Empty: for any.
  std::string client = {};
  bool dry_run = false;  // only report; write nothing
  // onnx. "integer": products of codes as integer sums, exactly ours. "qdq": float ops between QuantizeLinear and
  // DequantizeLinear, as accelerator compilers expect. Empty: integer.
  // hf. "values": fp32. "packed": integer codes as compressed-tensors packs them. Empty: values.
  std::string form = {};
  bool dequantize = false;  // safetensors, npz: fp32 values instead of codes and scales
  // onnx, c: inputs are bytes, which the file scales as data.affine or data.normalize says.
  bool with_normalization = false;
  bool float_io = false;    // c, networks of integers: floats in and out, which the file quantizes and reads back
  bool softmax = false;     // c, tflite, networks of integers: codes of probabilities behind the outputs
  bool stream = false;      // c, networks of integers: of values between two layers only the rows that are needed
  int opset = 0;            // onnx: 21 to 28; 0: 21. 2-bit codes have their own type from 25 on
  std::string origin = {};  // gguf, hf: the model's (interop/model_origin.h); empty: none. export_file sets it
};
// The members that are options of targets (ExportTarget::options), as `bitgrad export` has them: v(name, member, text).
template <typename V, typename S>
void visit_export_options(V&& v, S& s) {
  v("--form", s.form,
    "onnx: integer (exact sums; the default) or qdq (Quantize- and DequantizeLinear); hf: values (the default) "
    "or packed (codes of compressed-tensors)");
  v("--opset", s.opset, "onnx: 21 (the default) to 28; from 25 on 2-bit codes are INT2");
  v("--with-normalization", s.with_normalization,
    "onnx, c: inputs are bytes, normalized in the exported model by data.affine or data.normalize of the run");
  v("--float-io", s.float_io,
    "c, networks of integers: floats in and out instead of codes, quantized and read back in the exported file");
  v("--softmax", s.softmax,
    "c, tflite, networks of integers: outputs are codes of probabilities, the softmax of each row");
  v("--stream", s.stream,
    "c, networks of integers: less RAM, and equal codes: of a value between a convolution and the next one, or a pool, "
    "the file keeps only the rows that this one reads");
  v("--dequantize", s.dequantize, "safetensors, npz: write fp32 values instead of codes and scales");
  v("--family", s.family,
    "gpt2, llama, qwen2, qwen3, gemma3, gemma2, granite, smollm3, mistral, olmo2 or bitnet; default: inferred from the "
    "layers");
  v("--client", s.client, "gguf: newer, for versions of llama.cpp that read the activation of bitnet from the file");
}
// How one tensor of an exported file was written.
struct ExportedTensor {
  enum class Fate : uint8_t {
    kExact,    // codes and scales, or floats, are stored exactly
    kRounded,  // floats or scales are rounded: see `error`
    kZeros,    // absent in the model but required by the file
    kRefused,  // the file cannot hold it: see `reason`
  };
  std::string name = {};       // in the file
  std::string parameter = {};  // path in the model; empty for kZeros
  Shape shape = {};            // as in the file, rows first
  std::string type = {};       // "Q4_0", "F32", ...
  Fate fate = Fate::kExact;
  double error = 0;         // largest difference of a value, relative to the tensor's largest value
  std::string reason = {};  // for kRounded and kRefused
};
template <>
struct EnumNames<ExportedTensor::Fate> {
  static constexpr std::string_view all[] = {"exact", "rounded", "zeros", "refused"};
};
// How the computation of one layer was exported, for targets that run a graph.
struct ExportedLayer {
  std::string layer = {};      // path
  std::string operation = {};  // e.g. "MatMulInteger int8 x int4"
  ExportedTensor::Fate fate = ExportedTensor::Fate::kExact;
  double error = 0;         // kRounded: bound on the result; `reason` says of what
  std::string reason = {};  // for kRounded and kRefused
};
struct ExportReport {
  std::string variant = {};  // which of the target's forms it is: the family of a decoder, "integer", "C99", "arrays"
  std::vector<ExportedTensor> tensors = {};
  std::vector<ExportedLayer> layers = {};
  // What a program that uses the file has to know, by name: "runs in", "input", "classes", "memory", "tokenizer". One
  // line each.
  std::vector<std::pair<std::string, std::string>> facts = {};
  int64_t flash_bytes = -1, ram_bytes = -1;  // c: of constants and of buffers; -1: not known
  bool refused() const;                      // whether any tensor or layer is kRefused
  // Throws Error that lists them, followed by `hint`; nothing if there are none.
  void require_all_held(std::string_view where, std::string_view hint = {}) const;
};

// `model` must be initialized, have values and match `spec`. `tokenizer` may be nullptr. Throws Error if the model is
// no decoder, if a layer does not fit the family (named in the message), or, unless dry_run, if tensors are refused
// (all are listed). Nothing is written then.
ExportReport export_gguf(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer, const std::string& path,
                         const ExportSpec& options = {});
ExportReport export_hugging_face(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer,
                                 const std::string& folder, const ExportSpec& options = {});

// An imported model: layers, parameters by path, and the file's tokenizer.
struct ImportedModel {
  std::string family = {};
  ModelSpec spec = {};
  std::vector<std::pair<std::string, Tensor>> parameters = {};  // fp32, fp16, bf16; codes with scales
  // GGUF: by parameter, the type of a matrix in the file, or types of its parts: "Q4_0", "Q4_0 Q6_K".
  std::map<std::string, std::string> types = {};
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // nullptr: none, or not supported
  ModelOrigin origin = {};                               // what the files say beside it
  std::vector<std::string> notes = {};                   // what was left out, and why
  std::vector<std::string> read = {}, unused = {};       // keys of the file, and files of the folder
};
// Throw Error(kData) for files that are damaged, of an unsupported family, or incomplete. All mismatches (missing,
// unexpected, shapes) are listed together.
ImportedModel import_gguf(const std::string& path);
ImportedModel import_hugging_face(const std::string& folder);

// How the inputs of products are rounded whose weights are codes. Inputs of other weights stay floats.
enum class ImportInputs : uint8_t {
  kAsTrained,  // not at all, but those of BitNet's ternary weights: kInt8
  kFloat,      // not at all
  kInt8,       // int8 (absmax), a scale for each token
  // int8 (absmax), a scale for each block of 32 inputs, or of 256 for types TQ1_0 and TQ2_0: the blocks in which
  // llama.cpp rounds them (q8_0, q8_K; it rounds scales of blocks of 32 to fp16). docs/numerics.md section 4.
  kInt8Block,
};
template <>
struct EnumNames<ImportInputs> {
  static constexpr std::string_view all[] = {"as_trained", "float", "int8", "int8_block"};
};
// What became of a matrix of the file, for a report.
struct ImportedLayer {
  std::string layer = {};    // path of the layer that reads it
  std::string type = {};     // ImportedModel::types; empty: not known
  std::string weights = {};  // "int4 per group(32)", or "fp32"
  std::string inputs = {};   // "int8 per group(32)", or "fp32"; empty: ids
};
// Saves it as a model file for train (model.init_from), eval, generate and inspect. Throws Error, and writes nothing,
// if kInt8 or kInt8Block is wanted and no weight is codes, and for weights whose groups do not fit kInt8Block (all are
// listed).
std::vector<ImportedLayer> save_imported(const ImportedModel& model, const std::string& path,
                                         ImportInputs inputs = ImportInputs::kAsTrained);

// Initializes a model from weights of other programs: files of named float tensors, and the mapping to parameters.
// docs/pytorch.md.

// Whether init_from_weights can read a path: .npz, .gguf, an index of shards (*.index.json), a folder that is no run
// and contains model.safetensors or its index, or a .safetensors file not written by bitgrad. Throws Error(kData) for a
// damaged file.
bool is_weight_file(const std::string& path);
// Initializes parameters by name. F32, F16, BF16 and F64 (npz: float16, float32, float64) are read as fp32, GGUF blocks
// are dequantized.
// - A parameter without a rule is looked up by its path, then by its path without "layers."; failing that, gamma and
//   slope as weight, and beta as bias.
// - Convolutions are OIHW in the file. Features that a layer flattens from images [h, w, c] are in the order [c, h, w].
// - num_batches_tracked of batch norms is ignored.
// Throws a single Error(kData) that lists every mismatch (parameters without a tensor, tensors without a parameter,
// shapes, dtypes, rules that match nothing), and Error(kNonFinite) for NaN and Inf; the model is unchanged in the
// former case. Learned parts, observers and adapters of the model keep their own initial values. Call before the first
// microbatch; draws as in init_from.
InitFrom init_from_weights(const std::string& path, Module& model, const WeightMap& map = {}, int64_t step = 0);

}  // namespace bitgrad
