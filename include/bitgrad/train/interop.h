// Models in files of other programs: GGUF (llama.cpp) and Hugging Face folders (safetensors and config.json). They are
// described by a Decoder (train/decoder.h). docs/interop.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

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
// How the computation of one layer was exported, for targets that run a graph.
struct ExportedLayer {
  std::string layer = {};      // path
  std::string operation = {};  // e.g. "MatMulInteger int8 x int4"
  ExportedTensor::Fate fate = ExportedTensor::Fate::kExact;
  double error = 0;         // kRounded: bound on the result; `reason` says of what
  std::string reason = {};  // for kRounded and kRefused
};
struct ExportReport {
  std::string family = {};  // "gpt2", "llama", "qwen2", "bitnet"; for graphs the form, "integer" or "qdq"
  std::vector<ExportedTensor> tensors = {};
  std::vector<ExportedLayer> layers = {};
  bool refused() const;  // whether any tensor or layer is kRefused
};

struct ExportSpec {
  std::string family = {};  // empty: chosen by the model's structure
  bool dry_run = false;     // only report; write nothing
  // onnx. "integer": products of codes as integer sums, exactly ours. "qdq": float ops between QuantizeLinear and
  // DequantizeLinear, as accelerator compilers expect. Empty: integer.
  std::string form = {};
  bool dequantize = false;  // safetensors, npz: fp32 values instead of codes and scales
  int opset = 0;            // onnx: 21 to 28; 0: 21. 2-bit codes have their own type from 25 on
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
  std::vector<std::pair<std::string, Tensor>> parameters = {};  // fp32, or codes with scales
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;         // nullptr: none, or not supported
  std::vector<std::string> notes = {};                          // what was left out, and why
};
// Throw Error(kData) for files that are damaged, of an unsupported family, or incomplete. All mismatches (missing,
// unexpected, shapes) are listed together.
ImportedModel import_gguf(const std::string& path);
ImportedModel import_hugging_face(const std::string& folder);
// Saves it as a model file for train (model.init_from), eval, generate and inspect.
void save_imported(const ImportedModel& model, const std::string& path);

}  // namespace bitgrad
