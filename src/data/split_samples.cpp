#include "data/split_samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/rng.h"
#include "data/image_dataset.h"

namespace bitgrad::data {
namespace {

// Everything a data set reports except its samples.
struct Description {
  explicit Description(const Dataset& all)
      : name(all.name()),
        shape(all.sample_shape()),
        classes(all.classes()),
        target(all.target_form()),
        class_names(all.class_names()),
        feature_names(all.feature_names()),
        vocabulary(all.vocabulary()),
        document_end(all.document_end()),
        tokenizer(all.tokenizer()),
        table(all.table()),
        notes(all.notes()) {}
  std::string name;
  std::vector<int64_t> shape;
  int64_t classes;
  TargetForm target;
  std::vector<std::string> class_names, feature_names;
  int64_t vocabulary, document_end;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TablePlan> table;
  std::vector<std::string> notes;
};

class PartBase : public Dataset {
 public:
  PartBase(const Dataset& all, SplitPart part, int64_t size)
      : d_(all), kind_(all.epoch_order().kind), size_(size), part_(part) {}
  std::string name() const override { return concat(d_.name, part_ == SplitPart::kValid ? " (valid)" : ""); }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return d_.shape; }
  int64_t classes() const override { return d_.classes; }
  TargetForm target_form() const override { return d_.target; }
  std::vector<std::string> class_names() const override { return d_.class_names; }
  std::vector<std::string> feature_names() const override { return d_.feature_names; }
  EpochOrder epoch_order() const override { return {kind_, size_}; }
  int64_t vocabulary() const override { return d_.vocabulary; }
  int64_t document_end() const override { return d_.document_end; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return d_.tokenizer; }
  std::shared_ptr<const TablePlan> table() const override { return d_.table; }
  std::vector<std::string> notes() const override {
    return part_ == SplitPart::kValid ? std::vector<std::string>{} : d_.notes;  // those of data.train
  }
  void sample(int64_t index, float* x, int32_t* label) const override {
    require(dtype() == dtypes::fp32 && one_class(), "data", name(), ": read the samples by example.");
    example(index, x, label);
  }
  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override {
    require(dtype() == dtypes::int32 && one_class(), "data", name(), ": read the samples by example.");
    example(index, x, label);
  }

 private:
  bool one_class() const { return d_.target.classes > 0 && d_.target.shape.rank() == 0; }
  const Description d_;
  const EpochOrder::Kind kind_;
  const int64_t size_;
  const SplitPart part_;
};

// View of samples that are generated on access.
class PartView final : public PartBase {
 public:
  PartView(std::shared_ptr<const Dataset> all, std::vector<int64_t> indices, SplitPart part)
      : PartBase(*all, part, std::ssize(indices)), all_(std::move(all)), indices_(std::move(indices)) {}
  void example(int64_t index, void* x, void* target) const override {
    check_index(index);
    all_->example(indices_[static_cast<size_t>(index)], x, target);
  }
  int64_t memory_bytes() const override { return all_->memory_bytes() + std::ssize(indices_) * int64_t{8}; }

 private:
  std::shared_ptr<const Dataset> all_;
  std::vector<int64_t> indices_;
};

// Gathers the rows `indices` of `each` elements, `stride` elements apart.
TrackedBytes rows_of(const void* from, int64_t element, int64_t each, int64_t stride,
                     const std::vector<int64_t>& indices) {
  const int64_t bytes = each * element;
  TrackedBytes out(std::ssize(indices) * bytes, MemoryKind::kDataset);
  for (size_t i = 0; i < indices.size(); ++i)
    std::memcpy(out.data() + static_cast<int64_t>(i) * bytes,
                static_cast<const uint8_t*>(from) + indices[i] * stride * element, static_cast<size_t>(bytes));
  return out;
}

// Copy of samples that are in memory.
class PartCopy final : public PartBase {
 public:
  PartCopy(const Dataset& all, const StoredSamples& stored, const std::vector<int64_t>& indices, SplitPart part)
      : PartBase(all, part, std::ssize(indices)), features_(all.features()), stored_(stored) {
    codes_ = rows_of(stored.codes, element_bytes(stored.form), features_, stored.stride, indices);
    const int64_t target = all.target_form().shape.numel();
    targets_ = rows_of(stored.labels, element_bytes(stored.target_form), target, stored.target_stride, indices);
    stored_.target_stride = target;
    if (stored.numbers != nullptr) numbers_.assign(stored.numbers, stored.numbers + 256 * stored.tables);
    stored_.codes = codes_.data();
    stored_.bytes = codes_.size();
    stored_.stride = features_;
    stored_.numbers = numbers_.empty() ? nullptr : numbers_.data();
    stored_.labels = targets_.data();
  }
  StoredSamples stored() const override { return stored_; }
  int64_t memory_bytes() const override { return codes_.size() + targets_.size(); }
  void example(int64_t index, void* x, void* target) const override {
    check_index(index);
    copy_stored_sample(stored_, index, features_, x);
    copy_stored_target(stored_, index, stored_.target_stride, target);
  }

 private:
  const int64_t features_;
  StoredSamples stored_;
  TrackedBytes codes_, targets_;
  std::vector<float> numbers_;
};

class FirstSamples final : public PartBase {
 public:
  FirstSamples(std::unique_ptr<Dataset> all, int64_t limit)
      : PartBase(*all, SplitPart::kTrain, limit), all_(std::move(all)) {}

  EpochOrder epoch_order() const override {
    const EpochOrder order = all_->epoch_order();
    return {order.kind, std::min(order.samples, size())};
  }
  int64_t memory_bytes() const override { return all_->memory_bytes(); }
  void example(int64_t index, void* x, void* target) const override {
    check_index(index);
    all_->example(index, x, target);
  }
  StoredSamples stored() const override {
    StoredSamples s = all_->stored();
    if (s.codes != nullptr) s.bytes = ((size() - 1) * s.stride + all_->features()) * element_bytes(s.form);
    return s;
  }

 private:
  std::unique_ptr<Dataset> all_;
};

std::unique_ptr<Dataset> part_of(std::shared_ptr<const Dataset> all, std::vector<int64_t> indices, SplitPart part) {
  const StoredSamples stored = all->stored();
  if (stored.codes == nullptr || stored.labels == nullptr)
    return std::make_unique<PartView>(std::move(all), std::move(indices), part);
  return std::make_unique<PartCopy>(*all, stored, indices, part);
}

}  // namespace

std::vector<int64_t> split_indices(int64_t n, double fraction, uint64_t seed, SplitPart part) {
  require(n >= 2, "data", "data.valid.fraction: got ", n, " sample of data.train, expected at least 2 to split.");
  const int64_t valid = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(n)), 1, n - 1);
  const RandomStream stream{seed, Purpose::kShuffle, site_id("data.valid"), 0};
  std::vector<std::pair<uint64_t, int64_t>> drawn(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) drawn[static_cast<size_t>(i)] = {stream.bits64(static_cast<uint64_t>(i)), i};
  std::nth_element(drawn.begin(), drawn.begin() + valid, drawn.end());
  std::vector<int64_t> out;
  const auto first = drawn.begin() + (part == SplitPart::kValid ? 0 : valid);
  const auto end = part == SplitPart::kValid ? drawn.begin() + valid : drawn.end();
  for (auto at = first; at != end; ++at) out.push_back(at->second);
  std::sort(out.begin(), out.end());
  return out;
}

std::unique_ptr<Dataset> split_samples(std::shared_ptr<const Dataset> all, double fraction, uint64_t seed,
                                       SplitPart part) {
  std::vector<int64_t> indices = split_indices(all->size(), fraction, seed, part);
  return part_of(std::move(all), std::move(indices), part);
}

std::unique_ptr<Dataset> normal_samples(std::shared_ptr<const Dataset> all) {
  require(all->classes() == 0 && all->target_form().shape.numel() == 1, "data", all->name(),
          ": targets are not one value per sample.");
  std::vector<uint8_t> x(static_cast<size_t>(all->features()) * sizeof(float));  // or ids, as large
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < all->size(); ++i) {
    float target = 0;
    all->example(i, x.data(), &target);
    if (target == 0) indices.push_back(i);
  }
  if (indices.empty())
    fail_with(ErrorCode::kData, "data", "normal_class: the part of ", all->name(),
              " that data.valid.fraction leaves for training has no normal sample.");
  return part_of(std::move(all), std::move(indices), SplitPart::kTrain);
}

std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> all, int64_t limit) {
  require(limit >= 1 && limit <= all->size(), "data", "limit: got ", limit, ", expected 1 .. ", all->size(),
          ", the samples of ", all->name(), ".");
  return std::make_unique<FirstSamples>(std::move(all), limit);
}

}  // namespace bitgrad::data
