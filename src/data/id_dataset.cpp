#include "data/image_dataset.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "data/formats.h"

namespace bitgrad::data {

std::vector<Key> array_keys() {
  return {vocabulary_key(),
          {.name = "ignore_label",
           .type = Key::Type::kInt,
           .range = "[-2147483648, 2147483647]",
           .standard = "-100",
           .doc = "labels [n, positions]: the label of a position that counts nowhere, such as a prompt"}};
}
std::vector<Key> memory_keys() { return {vocabulary_key()}; }

ArrayKeys::ArrayKeys(const DatasetSpec& spec)
    : vocabulary(spec.keys.integer("vocabulary")), ignore(spec.keys.integer("ignore_label")) {}

void ArrayKeys::check_labels(std::string_view where, bool positions) const {
  require(positions || ignore == kIgnoredClass, where, "ignore_label: got ", ignore,
          ", which is for labels [n, positions]; here each sample has one label, and all count");
}

IdDataset::IdDataset(std::string name, std::vector<int64_t> shape, int64_t vocabulary, TrackedBytes ids,
                     ImageDataset::Targets targets)
    : name_(std::move(name)),
      shape_(std::move(shape)),
      vocabulary_(vocabulary),
      size_(ids.size() / (features() * element_bytes(StoredAs::kInt32))),
      ids_(std::move(ids)),
      targets_(std::move(targets)) {}

StoredSamples IdDataset::stored() const {
  return {.codes = ids_.data(),
          .bytes = ids_.size(),
          .stride = features(),
          .numbers = nullptr,
          .labels = targets_.data.data(),
          .form = StoredAs::kInt32,
          .target_form = targets_.stored,
          .target_stride = targets_.form.shape.numel()};
}

void IdDataset::example(int64_t index, void* x, void* target) const {
  require(index >= 0 && index < size_, "data", name_, ": sample index: got ", index, ", expected 0 .. ", size_ - 1,
          ".");
  const int64_t each = features();
  std::copy_n(reinterpret_cast<const int32_t*>(ids_.data()) + index * each, each, static_cast<int32_t*>(x));
  copy_stored_target(stored(), index, targets_.form.shape.numel(), target);
}

void IdDataset::sample_ids(int64_t index, int32_t* x, int32_t* label) const {
  require(targets_.form.classes > 0 && targets_.form.shape.rank() == 0, "data", name_,
          ": targets are not one class per sample: read it by example.");
  example(index, x, label);
}

}  // namespace bitgrad::data
