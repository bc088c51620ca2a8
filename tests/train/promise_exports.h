// What every target of `bitgrad export` makes of a model.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "train/small_runs.h"

namespace bitgrad::test {

// The bytes that a target writes at `path` and its ending, which are removed, or why it refuses the model.
inline std::string export_text(const ExportTarget& target, const ExportSource& source, const ExportSpec& spec,
                               const std::string& path) {
  std::string text;
  const auto add = [&](const std::string& file) { text += file.substr(path.size()) + '\n' + text_of(file); };
  const auto ending = [&](std::string_view end) { return path + std::string(end); };
  try {
    target.write(source, ending(target.ending), spec);
    if (target.ending.empty()) {
      std::vector<std::string> names = file_system().list(path);
      std::sort(names.begin(), names.end());
      for (const std::string& name : names) add(path + '/' + name);
    } else {
      add(ending(target.ending));
    }
    if (!target.companion.empty()) add(ending(target.companion));
    for (const std::string_view end : {target.ending, target.companion}) std::filesystem::remove_all(ending(end));
  } catch (const Error& error) {
    text = concat("refused: ", error.what());
    for (size_t at; (at = text.find(path)) != std::string::npos;) text.erase(at, path.size());
  }
  return text;
}

// By "export NAME". `file`: where the model was saved, with its tokenizer.
inline std::map<std::string, std::string> exports_of(Learner& learner, const std::string& file) {
  std::map<std::string, std::string> out;
  const std::optional<ModelRecord> record = model_record(learner);
  const auto tokenizer = tokenizer_of(read_checkpoint_header(file), file);
  const auto add = [&](const ExportTarget& target, const std::string& form, const ExportSpec& spec) {
    const ExportSource source{&learner.model(), &record->model, tokenizer.get()};
    out[concat("export ", target.name, form)] = export_text(target, source, spec, file + "_exports");
  };
  for (const ExportTarget& target : export_targets()) {
    add(target, "", {});
    if (target.name == "onnx") add(target, " in qdq", {.form = "qdq"});
    if (target.name == "safetensors") add(target, " of values", {.dequantize = true});
  }
  return out;
}

}  // namespace bitgrad::test
