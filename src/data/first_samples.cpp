#include "data/first_samples.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

class FirstSamples final : public Dataset {
 public:
  FirstSamples(std::unique_ptr<Dataset> all, int64_t limit) : all_(std::move(all)), limit_(limit) {}

  std::string name() const override { return all_->name(); }
  int64_t size() const override { return limit_; }
  std::vector<int64_t> sample_shape() const override { return all_->sample_shape(); }
  int64_t classes() const override { return all_->classes(); }
  EpochOrder epoch_order() const override {
    const EpochOrder order = all_->epoch_order();
    return {order.kind, std::min(order.samples, limit_)};
  }
  int64_t document_end() const override { return all_->document_end(); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return all_->tokenizer(); }
  TargetForm target_form() const override { return all_->target_form(); }
  std::vector<std::string> class_names() const override { return all_->class_names(); }
  std::vector<std::string> feature_names() const override { return all_->feature_names(); }
  std::shared_ptr<const TablePlan> table() const override { return all_->table(); }
  std::vector<std::string> notes() const override { return all_->notes(); }
  int64_t vocabulary() const override { return all_->vocabulary(); }
  int64_t memory_bytes() const override { return all_->memory_bytes(); }
  void sample(int64_t index, float* x, int32_t* label) const override {
    check(index);
    all_->sample(index, x, label);
  }
  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override {
    check(index);
    all_->sample_ids(index, x, label);
  }
  void example(int64_t index, void* x, void* target) const override {
    check(index);
    all_->example(index, x, target);
  }
  StoredSamples stored() const override {
    StoredSamples s = all_->stored();
    if (s.codes != nullptr) s.bytes = ((limit_ - 1) * s.stride + all_->features()) * element_bytes(s.form);
    return s;
  }

 private:
  void check(int64_t index) const {
    require(index >= 0 && index < limit_, "data", name(), ": sample index: got ", index, ", expected 0 .. ", limit_ - 1,
            ".");
  }

  std::unique_ptr<Dataset> all_;
  int64_t limit_;
};

}  // namespace

std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> all, int64_t limit) {
  require(limit >= 1 && limit <= all->size(), "data", "limit: got ", limit, ", expected 1 .. ", all->size(),
          ", the samples of ", all->name(), ".");
  return std::make_unique<FirstSamples>(std::move(all), limit);
}

}  // namespace bitgrad::data
