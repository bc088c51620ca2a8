// Tables of text as data sets.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace bitgrad::test {

struct CsvFolder {
  TempDir temp;
  std::unique_ptr<Dataset> open(const std::string& text, const Attributes& keys,
                                const std::string& training = {}) const {
    write_file_atomically(temp.file("x.csv"), text);
    if (!training.empty()) write_file_atomically(temp.file("train.csv"), training);
    DatasetSpec spec;
    spec.format = "csv";
    spec.root = temp.path();
    spec.file = "x.csv";
    if (!training.empty()) spec.vocabulary_file = "train.csv";
    spec.keys = keys;
    return make_dataset(spec);
  }
  std::string error(const std::string& text, const Attributes& keys, const std::string& training = {}) const {
    std::string what = error_of([&] { open(text, keys, training); });
    const std::string path = temp.path() + "/";
    for (size_t at = what.find(path); at != std::string::npos; at = what.find(path)) what.erase(at, path.size());
    return what;
  }
};

inline Attributes keys_of(std::initializer_list<std::pair<const char*, const char*>> texts) {
  Attributes keys;
  for (const auto& [key, text] : texts) keys[key] = std::string(text);
  return keys;
}

// Features and target of a sample, in a row.
inline std::vector<float> row_of(const Dataset& data, int64_t i) {
  std::vector<float> x(static_cast<size_t>(data.features()));
  std::vector<float> y(static_cast<size_t>(data.target_form().shape.numel()));
  int32_t label = 0;
  const bool classes = data.classes() > 0;
  data.example(i, x.data(), classes ? static_cast<void*>(&label) : y.data());
  if (classes) y = {static_cast<float>(label)};
  x.insert(x.end(), y.begin(), y.end());
  return x;
}

// Of all samples.
inline std::vector<float> table_of(const Dataset& data) {
  std::vector<float> out;
  for (int64_t i = 0; i < data.size(); ++i) {
    const std::vector<float> row = row_of(data, i);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace bitgrad::test
