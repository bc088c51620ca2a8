// Checkpoints taken apart and put together again, for tests of what is refused.
#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_learner.h"

namespace bitgrad::test {

inline const RunCounters kCounters{2, 30, 87.5, 1, 80.25, 12.5};

// A checkpoint taken apart, to be changed and written again with right checksums.
struct Parts {
  std::vector<SafetensorsItem> items;
  std::vector<std::vector<uint8_t>> bytes;
  std::map<std::string, std::string> metadata;

  explicit Parts(const std::string& path) {
    const SafetensorsFile file = SafetensorsFile::read(path);
    for (const SafetensorsEntry& e : file.entries()) {
      bytes.emplace_back(file.data(e.name), file.data(e.name) + e.bytes);
      items.push_back({e.name, e.dtype, e.shape, nullptr, e.bytes});
    }
    for (const auto& [key, text] : file.metadata())
      if (!contains(key, "crc32c")) metadata[key] = text;
  }
  void write(const std::string& path) {
    for (size_t i = 0; i < items.size(); ++i) items[i].data = bytes[i].data();
    write_safetensors(path, items, metadata);
  }
  size_t find(const std::string& name) const {
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].name == name) return i;
    throw std::runtime_error("no tensor " + name);
  }
  void edit(const std::string& key, const std::function<void(Json&)>& change) {
    Json j = Json::parse(metadata.at(key));
    change(j);
    metadata[key] = j.dump();
  }
};

// Saves a trained learner, changes the parts, and gives the error, which has `code`, of loading them into a learner
// like it; "" when it loads.
inline std::string error_after(const std::function<void(Parts&)>& change, int code = 3) {
  TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 2);
  save_checkpoint(temp.file("a"), *learner, kCounters, "version: 1");
  Parts parts(temp.file("a"));
  change(parts);
  parts.write(temp.file("b"));
  const auto fresh = small_learner();
  const auto load = [&] { load_checkpoint(temp.file("b"), *fresh); };
  const std::string text = error_of(load);
  if (!text.empty()) {
    CHECK(error_code_of(load) == code);
    CHECK(contains(text, temp.file("b")));
  }
  return text;
}

}  // namespace bitgrad::test
