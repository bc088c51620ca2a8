// Models in files of other programs: GGUF (llama.cpp) and Hugging Face folders (safetensors and config.json). What a
// model is to them is a Decoder (train/decoder.h). docs/interop.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

// What becomes of one tensor of a file that is written.
struct ExportedTensor {
  enum class Fate : uint8_t {
    kExact,    // the file holds the very codes and scales, or numbers
    kRounded,  // numbers, or scales, are rounded: `error` says how far
    kZeros,    // the model has none, and the file must have one
    kRefused,  // the file cannot hold it: `reason`
  };
  std::string name = {};       // in the file
  std::string parameter = {};  // its path in the model; empty: kZeros
  Shape shape = {};            // as in the file, rows first
  std::string type = {};       // "Q4_0", "F32", ...
  Fate fate = Fate::kExact;
  double error = 0;         // largest difference of a value, relative to the largest value of the tensor
  std::string reason = {};  // of kRounded and kRefused
};
// What becomes of what one layer computes, in targets that run a graph.
struct ExportedLayer {
  std::string layer = {};      // its path
  std::string operation = {};  // "MatMulInteger int8 x int4"
  ExportedTensor::Fate fate = ExportedTensor::Fate::kExact;
  double error = 0;         // kRounded: bound of a result, as `reason` says of what
  std::string reason = {};  // of kRounded and kRefused
};
struct ExportReport {
  std::string family = {};  // "gpt2", "llama", "qwen2", "bitnet"; of graphs: the form, "integer", "qdq"
  std::vector<ExportedTensor> tensors = {};
  std::vector<ExportedLayer> layers = {};
  bool refused() const;  // whether any tensor or layer is
};

struct ExportSpec {
  std::string family = {};  // empty: the one that the structure asks for
  bool dry_run = false;     // the report alone; nothing is written
  // onnx. "integer": products of codes are sums of integers, exactly ours; "qdq": floats between QuantizeLinear and
  // DequantizeLinear, as compilers for accelerators read them. Empty: integer.
  std::string form = {};
  bool dequantize = false;  // safetensors, npz: values in fp32 in place of codes and scales
  int opset = 0;            // onnx: 21 to 28; 0: 21. From 25 on codes of 2 bits have a type of their own
};
// `model`: initialized, with values, as `spec` describes it. tokenizer: nullptr where it has none. Throws Error where
// the model is no decoder, a layer does not fit the family (named), or a tensor is refused (all are listed) without
// dry_run; then nothing is written.
ExportReport export_gguf(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer, const std::string& path,
                         const ExportSpec& options = {});
ExportReport export_hugging_face(Module& model, const ModelSpec& spec, const Tokenizer* tokenizer,
                                 const std::string& folder, const ExportSpec& options = {});

// What was read: layers, their parameters by path, and the tokenizer of the file.
struct ImportedModel {
  std::string family = {};
  ModelSpec spec = {};
  std::vector<std::pair<std::string, Tensor>> parameters = {};  // fp32, or codes with scales
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;         // nullptr: none that is known here
  std::vector<std::string> notes = {};                          // what was left out, and why
};
// Throws Error (kData) for files that are damaged, of another family, or that lack tensors: everything that does not
// fit is listed together (missing, unexpected, shapes).
ImportedModel import_gguf(const std::string& path);
ImportedModel import_hugging_face(const std::string& folder);
// Writes it as a model file, which train (model.init_from), eval, generate and inspect open.
void save_imported(const ImportedModel& model, const std::string& path);

}  // namespace bitgrad
