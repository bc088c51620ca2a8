// Targets of `bitgrad export`, i.e. file formats of other programs; each is a line of src/export/targets.inc.
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
#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/run/build.h"

namespace bitgrad {

class Learner;  // train/learner.h

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
  enum class Holds : uint8_t { kDecoder, kGraph, kTensors };  // what its files say of a model
  std::string_view name = {};                                 // e.g. "onnx"
  std::string_view ending = {};                               // e.g. ".onnx"; empty: a folder
  std::string_view companion = {};  // e.g. ".h": a second file with this ending instead; empty: none
  Holds holds = Holds::kTensors;
  std::string_view options = {};  // options of `bitgrad export` that it reads (visit_export_options), by space
  // Options of QuantSpec whose effect its files have (BITGRAD_QUANT_OPTION of quant/scheme_fields.inc), by space, and
  // "integer": networks of integers.
  std::string_view carries = {};
  std::string_view doc = {};  // one-line description
  ExportReport (*function)(const ExportSource& source, const std::string& path, const ExportSpec& spec) = nullptr;
  // Writes `path`, or nothing with ExportSpec::dry_run. Throws Error that lists what the target cannot hold, or names
  // an option that it does not read or, with layer and value, one of quantization that it does not carry; nothing is
  // written then.
  ExportReport write(const ExportSource& source, const std::string& path, const ExportSpec& spec) const;
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
