#include "tools/norm_statistics.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "nn/layers/norm.h"
#include "ops/common.h"

namespace bitgrad::detail {
namespace {

// Mean and sum of squared differences of each column (or of all numbers, for one group), merged batch by batch
// (Chan et al. 1979).
class Moments {
 public:
  explicit Moments(int64_t groups) : mean_(static_cast<size_t>(groups)), squares_(mean_.size()) {}

  void add(const std::vector<double>& x) {
    const size_t groups = mean_.size(), n = x.size() / groups;
    if (n == 0) return;
    std::vector<double> mean(groups), squares(groups);
    for (size_t i = 0; i < x.size(); ++i) mean[i % groups] += x[i];
    for (double& m : mean) m /= static_cast<double>(n);
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = x[i] - mean[i % groups];
      squares[i % groups] += d * d;
    }
    const double before = static_cast<double>(n_), now = static_cast<double>(n), all = before + now;
    for (size_t j = 0; j < groups; ++j) {
      const double d = mean[j] - mean_[j];
      mean_[j] += d * (now / all);
      squares_[j] += squares[j] + d * d * (before * (now / all));
    }
    n_ += static_cast<int64_t>(n);
  }

  int64_t count() const { return n_; }
  const std::vector<double>& mean() const { return mean_; }
  std::vector<double> unbiased() const {
    std::vector<double> var = squares_;
    for (double& v : var) v /= static_cast<double>(n_ - 1);
    return var;
  }

 private:
  int64_t n_ = 0;
  std::vector<double> mean_, squares_;
};

void walk(Module& module, const std::function<void(const bitgrad::Norm&)>& use) {
  if (const auto* norm = dynamic_cast<const bitgrad::Norm*>(&module)) use(*norm);
  for (Module* child : module.children()) walk(*child, use);
}

}  // namespace

using Hook = std::function<void(const std::string& path, const Tensor& in, const Tensor& out)>;

Tensor predict_with(Learner& learner, const Tensor& x, const Hook& hook) {
  struct Restoring {
    StepState& state;
    Hook before;
    ~Restoring() { state.on_forward = std::move(before); }
  } const restoring{learner.state(), learner.state().on_forward};
  learner.state().on_forward = hook;
  return learner.predict(x);
}

NormRenewal::NormRenewal(Learner& learner, std::span<const SampleBatch> samples)
    : learner_(learner), samples_(samples) {
  require(!samples_.empty(), "batch norm", "statistics need samples: got none");
  std::map<std::string, Tensor> buffers;
  for (const Module::Buffer& b : learner.model().buffers()) buffers[b.path] = b.tensor;
  walk(learner.model(), [&](const bitgrad::Norm& norm) {
    norms_.push_back(
        {norm.path(), buffers.at(norm.path() + ".running_mean"), buffers.at(norm.path() + ".running_var"), 0});
  });
  if (norms_.empty()) return;
  predict_with(learner_, samples_.front().x, [&](const std::string& path, const Tensor&, const Tensor&) {
    places_.emplace(path, static_cast<int64_t>(places_.size()));
  });
  std::erase_if(norms_, [&](const Norm& norm) { return places_.count(norm.path) == 0; });
  for (Norm& norm : norms_) norm.place = places_.at(norm.path);
  std::sort(norms_.begin(), norms_.end(), [](const Norm& a, const Norm& b) { return a.place < b.place; });
}

void NormRenewal::renew(const std::string& after) {
  const auto found = places_.find(after);
  for (const Norm& norm : norms_)
    if (found == places_.end() || norm.place > found->second) renew(norm);
}

void NormRenewal::renew(const Norm& norm) {
  Moments moments(norm.mean.numel());
  for (const SampleBatch& batch : samples_)
    predict_with(learner_, batch.x, [&](const std::string& path, const Tensor& in, const Tensor&) {
      if (path != norm.path) return;
      const Tensor values = in.dtype() == dtypes::int32 ? values_of("batch norm", in, MemoryKind::kWorkspace) : in;
      moments.add(values.on_host().elements());
    });
  require(moments.count() >= 2, "batch norm", "the statistics of '", norm.path, "' need 2 values or more, the samples ",
          "give ", moments.count(), ". Use more samples");
  const DeviceGuard guard(learner_.device());
  norm.mean.copy_from(Tensor::from_elements(norm.mean.shape(), dtypes::fp32, moments.mean()));
  norm.var.copy_from(Tensor::from_elements(norm.var.shape(), dtypes::fp32, moments.unbiased()));
}

std::vector<Tensor> NormRenewal::statistics() const {
  const DeviceGuard guard(learner_.device());
  std::vector<Tensor> all;
  for (const Norm& norm : norms_)
    for (const Tensor* t : {&norm.mean, &norm.var}) all.push_back(t->clone(MemoryKind::kWorkspace));
  return all;
}

void NormRenewal::restore(const std::vector<Tensor>& statistics) const {
  const DeviceGuard guard(learner_.device());
  for (size_t i = 0; i < norms_.size(); ++i) {
    norms_[i].mean.copy_from(statistics[2 * i]);
    norms_[i].var.copy_from(statistics[2 * i + 1]);
  }
}

}  // namespace bitgrad::detail
