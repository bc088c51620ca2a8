#include "bitgrad/config/resume.h"

#include <algorithm>

namespace bitgrad {
namespace {

constexpr const char* kMask = "mask";  // of format tokens: a file of its own

// The data set of a key below data.train, data.valid or data.test; nullptr for other keys.
const DatasetConfig* dataset_of(const DataSection& data, const std::string& key) {
  if (key.starts_with("data.train.")) return &data.train;
  if (key.starts_with("data.valid.")) return data.valid ? &*data.valid : nullptr;
  if (key.starts_with("data.test.")) return data.test ? &*data.test : nullptr;
  return nullptr;
}

void take_paths(const DatasetConfig& from, DatasetConfig& to) {
  to.images = from.images, to.file = from.file, to.path = from.path;
  if (format_of(to).label_words.empty()) to.labels = from.labels;
  if (format_of(to).target_words.empty()) to.targets = from.targets;
  if (from.keys.contains(kMask) && to.keys.contains(kMask)) to.keys[kMask] = from.keys.text(kMask);
}

}  // namespace

ResumeRule resume_rule(const RunConfig& config, const std::string& key) {
  for (const std::string_view prefix : {"device.", "train.stop", "train.early_stop"})
    if (key.starts_with(prefix)) return ResumeRule::kOfCheckpoint;
  if (key == "data.root") return ResumeRule::kSamplePath;
  const DatasetConfig* const set = dataset_of(config.data, key);
  if (set == nullptr) return ResumeRule::kFixed;
  const std::string name = key.substr(key.rfind('.') + 1);
  const bool path = name == "images" || name == "file" || name == "path" || name == kMask ||
                    (name == "labels" && format_of(*set).label_words.empty()) ||
                    (name == "targets" && format_of(*set).target_words.empty());
  return path ? ResumeRule::kSamplePath : ResumeRule::kFixed;
}

void take_sample_paths(const RunConfig& from, RunConfig& to) {
  to.data.root = from.data.root;
  take_paths(from.data.train, to.data.train);
  if (from.data.valid && to.data.valid) take_paths(*from.data.valid, *to.data.valid);
  if (from.data.test && to.data.test) take_paths(*from.data.test, *to.data.test);
}

}  // namespace bitgrad
