#include "bitgrad/data/samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bitgrad/base/error.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad {
namespace {

constexpr std::string_view kMemory = "data.memory";

void check_finite(const SampleView& view) {
  const auto* const x = static_cast<const float*>(view.data);
  const int64_t each = std::max<int64_t>(view.shape.numel(), 1);
  for (int64_t i = 0; i < view.count * each; ++i)
    require(std::isfinite(x[i]), kMemory, view.name, ": sample ", i / each, ", value ", i % each, ": got ", x[i],
            ", expected a finite fp32");
}

// Returns the largest value + 1. Values must be at least 0, or kIgnoredClass if `ignored`.
int64_t check_numbers(const SampleView& view, int64_t below, bool ignored) {
  const int64_t each = std::max<int64_t>(view.shape.numel(), 1);
  int64_t largest = -1;
  for (int64_t i = 0; i < view.count * each; ++i) {
    int32_t x = 0;
    data::widen_stored(view.data, view.stored, i, 1, &x);
    require((x >= 0 && (below == 0 || x < below)) || (ignored && x == kIgnoredClass), kMemory, view.name, ": sample ",
            i / each, ", value ", i % each, ": got ", x, ", expected ",
            below == 0 ? std::string("0 or more") : concat("0 .. ", below - 1));
    largest = std::max<int64_t>(largest, x);
  }
  return largest + 1;
}

class MemoryDataset final : public Dataset {
 public:
  explicit MemoryDataset(const MemoryDatasetSpec& spec)
      : spec_(spec), values_(spec.affine, spec.normalize), ids_(spec.vocabulary > 0) {
    const SampleView &x = spec_.samples, &t = spec_.targets;
    require(x.count >= 1 && x.count == t.count, kMemory, "got ", x.count, " samples and ", t.count,
            " targets, expected as many, 1 or more");
    require(ids_ || x.stored == StoredAs::kUint8 || x.stored == StoredAs::kFloat, kMemory, x.name,
            ": got integers, expected bytes (uint8) or fp32 values: integers require a model of ids");
    require(!ids_ || x.stored != StoredAs::kFloat, kMemory, x.name,
            ": got fp32 values, the model expects ids (integers)");
    if (x.stored == StoredAs::kFloat) check_finite(x);
    if (ids_) check_numbers(x, spec_.vocabulary, false);
    target_.shape = t.shape;
    if (t.stored == StoredAs::kFloat) {
      require(spec_.classes == 0, kMemory, "classes: got ", spec_.classes, " with targets of fp32, which are values");
      check_finite(t);
      if (target_.shape.rank() == 0) target_.shape = {1};
    } else {
      const int64_t found = check_numbers(t, spec_.classes, t.shape.rank() > 0);
      target_.classes = spec_.classes > 0 ? spec_.classes : std::max<int64_t>(found, 1);
    }
    if (ids_) return;
    std::vector<float> trial(static_cast<size_t>(x.shape.numel()));
    values_.write(x, 0, 1, trial.data());  // throws if the channels do not match
  }
  std::string name() const override { return std::string(spec_.samples.name); }
  int64_t size() const override { return spec_.samples.count; }
  std::vector<int64_t> sample_shape() const override { return spec_.samples.shape.dims(); }
  int64_t classes() const override { return target_.classes; }
  TargetForm target_form() const override { return target_; }
  std::vector<std::string> notes() const override { return data::notes_of_bytes(ids_, spec_.samples); }
  int64_t vocabulary() const override { return spec_.vocabulary; }
  void example(int64_t index, void* x, void* target) const override {
    require(index >= 0 && index < size(), kMemory, "sample index: got ", index, ", expected 0 .. ", size() - 1);
    if (ids_)
      write_ids(spec_.samples, index, 1, static_cast<int32_t*>(x));
    else
      values_.write(spec_.samples, index, 1, static_cast<float*>(x));
    data::copy_stored_target(targets_stored(), index, std::max<int64_t>(target_.shape.numel(), 1), target);
  }
  void sample(int64_t index, float* x, int32_t* label) const override {
    require(!ids_ && one_class(), kMemory, "samples are not values of one class each: read them by example");
    example(index, x, label);
  }
  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override {
    require(ids_ && one_class(), kMemory, "samples are not ids of one class each: read them by example");
    example(index, x, label);
  }
  StoredSamples stored() const override {
    const bool same = spec_.affine == DatasetSpec{}.affine && !spec_.normalize.given();
    if (!ids_ && spec_.samples.stored == StoredAs::kFloat && !same) return {};  // values are computed on access
    StoredSamples out = targets_stored();
    out.codes = spec_.samples.data;
    out.form = spec_.samples.stored;
    out.stride = features();
    out.bytes = size() * out.stride * element_bytes(out.form);
    if (ids_ || out.form != StoredAs::kUint8) return out;
    out.numbers = values_.table().data();
    out.tables = std::ssize(values_.table()) / 256;
    return out;
  }

 private:
  bool one_class() const { return target_.classes > 0 && target_.shape.rank() == 0; }
  StoredSamples targets_stored() const {
    StoredSamples out;
    out.labels = spec_.targets.data;
    out.target_form = spec_.targets.stored;
    out.target_stride = std::max<int64_t>(target_.shape.numel(), 1);
    return out;
  }

  MemoryDatasetSpec spec_;
  SampleValues values_;
  bool ids_;
  TargetForm target_;
};

}  // namespace

std::unique_ptr<Dataset> make_memory_dataset(const MemoryDatasetSpec& spec) {
  return std::make_unique<MemoryDataset>(spec);
}

namespace data {

// Format memory in a configuration works only in the program that has the arrays, so this always fails.
std::unique_ptr<Dataset> make_memory_format(const DatasetSpec&) {
  fail(
      kMemory,
      "samples of format memory are arrays of the program that trained: Trainer(config, train, test). Name other data, "
      "such as 'data.test={format: digits, size: 1000}'. The program resumes its run: Trainer::resume, in Python "
      "Trainer.resume");
}

}  // namespace data
}  // namespace bitgrad
