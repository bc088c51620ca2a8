// In-memory examples whose samples are ids; targets are classes or values. Keys of formats of arrays.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/image_dataset.h"

namespace bitgrad::data {

// What array_keys() say: ids below `vocabulary` (0: samples are values), and the label that does not count.
struct ArrayKeys {
  explicit ArrayKeys(const DatasetSpec& spec);
  int64_t vocabulary = 0;
  int64_t ignore = kIgnoredClass;
  // Throws Error if `ignore` was set for labels [n], of which every one counts.
  void check_labels(std::string_view where, bool positions) const;
};

class IdDataset final : public Dataset {
 public:
  // ids: int32 [size, shape...] row-major, each below `vocabulary`.
  IdDataset(std::string name, std::vector<int64_t> shape, int64_t vocabulary, TrackedBytes ids,
            ImageDataset::Targets targets);

  std::string name() const override { return name_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  int64_t classes() const override { return targets_.form.classes; }
  int64_t vocabulary() const override { return vocabulary_; }
  TargetForm target_form() const override { return targets_.form; }
  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override;
  void example(int64_t index, void* x, void* target) const override;
  StoredSamples stored() const override;
  int64_t memory_bytes() const override { return ids_.size() + targets_.data.size(); }

 private:
  std::string name_;
  std::vector<int64_t> shape_;
  int64_t vocabulary_, size_;
  TrackedBytes ids_;
  ImageDataset::Targets targets_;
};

}  // namespace bitgrad::data
