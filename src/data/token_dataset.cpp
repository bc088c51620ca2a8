#include "data/token_dataset.h"

#include <algorithm>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::unique_ptr<TokenSource> ids, TokenTask task)
      : ids_(std::move(ids)), task_(std::move(task)), windows_(task_.windows) {
    const int64_t targets = ids_->size() - (windows_.tail ? 1 : windows_.context);
    const int64_t behind_first = windows_.overlap ? targets - windows_.context : targets - 1;
    const int64_t up = windows_.overlap ? windows_.stride - 1 : 0;
    size_ = std::max<int64_t>(0, behind_first + up) / windows_.stride + 1;
  }

  std::string name() const override { return task_.name; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return {windows_.context}; }
  int64_t classes() const override { return task_.vocabulary; }
  int64_t vocabulary() const override { return task_.vocabulary; }
  int64_t document_end() const override { return task_.document_end; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return task_.tokenizer; }
  TargetForm target_form() const override {
    return {.shape = windows_.each ? Shape{windows_.context} : Shape{},
            .classes = task_.vocabulary,
            .bytes_per_target = task_.bytes_per_target};
  }
  EpochOrder epoch_order() const override {
    return {windows_.order, windows_.epoch_samples > 0 ? windows_.epoch_samples : size_};
  }
  StoredSamples stored() const override {
    const bool ragged = windows_.tail && (ids_->size() - 1) % windows_.stride != 0;
    if (ids_->data() == nullptr || ragged || windows_.overlap || task_.mask != nullptr) return {};
    StoredSamples s;
    s.codes = ids_->data();
    s.bytes = ids_->memory_bytes();
    s.stride = s.target_stride = windows_.stride;
    s.form = s.target_form = ids_->form();
    s.labels = static_cast<const uint8_t*>(s.codes) + (windows_.each ? 1 : windows_.context) * element_bytes(s.form);
    return s;
  }
  int64_t memory_bytes() const override { return ids_->memory_bytes(); }

  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override {
    require(!windows_.each, task_.where, task_.name, ": targets are a class per position: read it by example.");
    example(index, x, label);
  }
  void example(int64_t index, void* x, void* target) const override {
    require(index >= 0 && index < size_, task_.where, task_.name, ": sample index: got ", index, ", expected 0 .. ",
            size_ - 1, ".");
    const int64_t begin = index * windows_.stride, count = std::min(windows_.context, ids_->size() - 1 - begin);
    auto* const to = static_cast<int32_t*>(x);
    auto* const labels = static_cast<int32_t*>(target);
    ids_->read(begin, count, to);
    if (!windows_.each) return ids_->read(begin + windows_.context, 1, labels);
    std::copy(to + 1, to + count, labels);
    ids_->read(begin + count, 1, labels + count - 1);
    if (task_.mask != nullptr) {
      std::vector<int32_t> counts(static_cast<size_t>(count));
      task_.mask->read(begin + 1, count, counts.data());
      for (int64_t p = 0; p < count; ++p)
        if (counts[static_cast<size_t>(p)] == 0) labels[p] = kIgnoredClass;
    }
    std::fill(to + count, to + windows_.context, 0);
    std::fill(labels + count, labels + windows_.context, kIgnoredClass);
    if (windows_.overlap && index > 0) std::fill_n(labels, windows_.context - windows_.stride, kIgnoredClass);
  }

 private:
  std::unique_ptr<TokenSource> ids_;
  TokenTask task_;
  TokenWindows windows_;
  int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> token_dataset(std::unique_ptr<TokenSource> ids, TokenTask task) {
  return std::make_unique<TokenDataset>(std::move(ids), std::move(task));
}

}  // namespace bitgrad::data
