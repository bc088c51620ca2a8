// What an import of a GGUF file promises, whatever trained the model and however its inputs are rounded.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "support/expect_error.h"

namespace bitgrad::test {

// How often a model with rounded inputs was compared.
inline int& imports_compared() {
  static int count = 0;
  return count;
}

// "" if ids one by one give the scores of all at once.
inline std::string steps_difference(Learner& learner) {
  Generator at_once(learner), one_by_one(learner);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < std::min<int64_t>(at_once.context(), 10); ++i) {
    ids.push_back(static_cast<int32_t>(i * 7 % at_once.vocabulary()));
    at_once.truncate(0);
    const std::span<const float> all = at_once.feed(ids), step = one_by_one.feed({&ids.back(), 1});
    if (std::memcmp(all.data(), step.data(), all.size_bytes()) != 0)
      return concat("of ", ids.size(), " ids one by one it gives other scores than of all at once");
  }
  return "";
}

// "" if the model, where GGUF holds it, is imported with every kind of inputs: ids one by one give the scores of all at
// once, and the file is exported again with the same bytes. `path`: for files.
inline std::string import_difference(Learner& trained, const std::string& path) {
  const std::string first = path + ".gguf", back = path + ".back.gguf", model = path + ".imported.safetensors";
  const auto write = [](Learner& learner, const std::string& file) {
    export_gguf(learner.model(), model_record(learner)->model, nullptr, file);
  };
  try {
    write(trained, first);
  } catch (const Error&) {
    return "";  // exports_of compares the words
  }
  const ImportedModel read = import_gguf(first);
  const GgufFile file = GgufFile::read(first);
  for (const ImportInputs inputs : {ImportInputs::kFloat, ImportInputs::kInt8, ImportInputs::kInt8Block}) {
    const std::string name = concat("imported with inputs ", enum_name(inputs), ": ");
    try {
      save_imported(read, model, inputs);
    } catch (const Error& error) {
      if (contains(error.what(), concat("inputs ", enum_name(inputs), ": got "))) continue;  // no integer codes
      throw;
    }
    const auto learner = load_evaluator(model, trained.loss());
    if (const std::string text = steps_difference(*learner); !text.empty()) return name + text;
    write(*learner, back);
    const GgufFile again = GgufFile::read(back);
    for (const GgufEntry& e : file.entries())
      if (again.entry(e.name).type != e.type || again.data(e.name) != file.data(e.name))
        return concat(name, e.name, " is exported with other bytes");
    imports_compared() += inputs != ImportInputs::kFloat;
  }
  return "";
}

}  // namespace bitgrad::test
