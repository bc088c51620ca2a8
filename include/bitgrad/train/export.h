// Targets of `bitgrad export`: files of other programs, each a line of src/train/export/targets.inc. docs/interop.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/train/interop.h"
#include "bitgrad/train/opened_file.h"

namespace bitgrad {

// What goes out. `model`: initialized, planned, with values, as `spec` describes it.
struct ExportSource {
  Module* model = nullptr;
  const ModelSpec* spec = nullptr;
  const Tokenizer* tokenizer = nullptr;  // nullptr: it has none
  std::string name = "model";            // for what a file says of itself
};

struct ExportTarget {
  std::string_view name = {};       // "onnx"
  std::string_view ending = {};     // ".onnx"; empty: a folder
  std::string_view companion = {};  // ".h": a second file, with this ending in place of the first; empty: none
  std::string_view doc = {};        // one line
  // Writes `path`, or with ExportSpec::dry_run nothing. Throws Error that lists what the target cannot hold, and then
  // nothing is written.
  ExportReport (*write)(const ExportSource& source, const std::string& path, const ExportSpec& spec) = nullptr;
};
// In the order of the list: of targets with one ending the first is what the ending alone means.
const std::vector<ExportTarget>& export_targets();
// By name, and by the ending where `format` is empty. Throws Error for an unknown name, for an ending that no target
// has, and where the two contradict each other.
const ExportTarget& choose_export_target(const std::string& path, const std::string& format);
// The model of a file, which `learner` holds, converted. Throws what the target throws, and Error where the model was
// made by a program of its own that did not describe its layers.
ExportReport export_file(const OpenedFile& file, Learner& learner, const ExportTarget& target, const std::string& path,
                         const ExportSpec& spec = {});
// What the functions of an exported C file begin with: the name of the file. Throws Error where C has no such name.
std::string c_name_of(const std::string& path);

}  // namespace bitgrad
