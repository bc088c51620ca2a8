// Targets of `bitgrad export`, i.e. file formats of other programs; each is a line of src/train/export/targets.inc.
// docs/interop.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/table.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/train/opened_file.h"

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
  // What a program that uses the file has to know, by name: "runs in", "input", "classes", "memory", "tokenizer". One
  // line each.
  std::vector<std::pair<std::string, std::string>> facts = {};
  int64_t flash_bytes = -1, ram_bytes = -1;  // c: of constants and of buffers; -1: not known
  bool refused() const;                      // whether any tensor or layer is kRefused
};

struct ExportSpec {
  std::string family = {};  // empty: chosen by the model's structure
  bool dry_run = false;     // only report; write nothing
  // onnx. "integer": products of codes as integer sums, exactly ours. "qdq": float ops between QuantizeLinear and
  // DequantizeLinear, as accelerator compilers expect. Empty: integer.
  // hf. "values": fp32. "packed": integer codes as compressed-tensors packs them. Empty: values.
  std::string form = {};
  bool dequantize = false;  // safetensors, npz: fp32 values instead of codes and scales
  // onnx, c: inputs are bytes, which the file scales as data.affine or data.normalize says.
  bool with_normalization = false;
  int opset = 0;            // onnx: 21 to 28; 0: 21. 2-bit codes have their own type from 25 on
  std::string origin = {};  // gguf, hf: the model's (train/model_origin.h); empty: none. export_file sets it
};
// The model to export. `model` must be initialized, planned, have values, and match `spec`.
struct ExportSource {
  Module* model = nullptr;
  const ModelSpec* spec = nullptr;
  const Tokenizer* tokenizer = nullptr;  // nullptr: none
  std::string name = "model";            // how the file names the model
  // How the run scaled its inputs, and its classes in order; empty: not known.
  std::array<float, 2> affine{1.0f, 0.0f};
  Normalization normalize = {};
  std::vector<std::string> class_names = {};
  std::shared_ptr<const TablePlan> table = {};  // what made its features of a table; null: no table
};

struct ExportTarget {
  std::string_view name = {};       // e.g. "onnx"
  std::string_view ending = {};     // e.g. ".onnx"; empty: a folder
  std::string_view companion = {};  // e.g. ".h": a second file with this ending instead; empty: none
  std::string_view doc = {};        // one-line description
  // Writes `path`, or nothing with ExportSpec::dry_run. Throws Error that lists what the target cannot hold; nothing is
  // written then.
  ExportReport (*write)(const ExportSource& source, const std::string& path, const ExportSpec& spec) = nullptr;
};
// In list order. If several targets share an ending, the first is its default.
const std::vector<ExportTarget>& export_targets();
// Looks up a target by name, or by the ending of `path` if `format` is empty. Throws Error for an unknown name or
// ending, and if the two contradict each other.
const ExportTarget& choose_export_target(const std::string& path, const std::string& format);
// Exports the model of `file`, loaded in `learner` and converted. Throws what the target throws, and Error if the model
// was made by a program that did not describe its layers.
ExportReport export_file(const OpenedFile& file, Learner& learner, const ExportTarget& target, const std::string& path,
                         const ExportSpec& spec = {});
// Prefix of the functions in an exported C file, taken from the file name. Throws Error if it is no valid C name.
std::string c_name_of(const std::string& path);

}  // namespace bitgrad
