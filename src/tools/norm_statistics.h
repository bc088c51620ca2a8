// Renews the running statistics of batch and tensor norm for a model whose values have changed since they were taken.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/tools/ptq.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::detail {

// The outputs for a batch, with a hook on all modules.
Tensor predict_with(Learner& learner, const Tensor& x,
                    const std::function<void(const std::string& path, const Tensor& in, const Tensor& out)>& hook);

// The norms of a model in the order in which an evaluation runs them. Mean and unbiased variance are those of all rows
// of the samples that reach the norm, in double, in evaluation mode and with the norms before it renewed already: one
// pass over the samples per norm. docs/numerics.md section 9.
class NormRenewal {
 public:
  // Runs the first batch. Throws Error if the samples give a norm a single value.
  NormRenewal(Learner& learner, std::span<const SampleBatch> samples);
  int64_t count() const { return static_cast<int64_t>(norms_.size()); }
  // Only norms that run after the layer `after`; empty: all.
  void renew(const std::string& after = {});
  // The running statistics of all norms.
  std::vector<Tensor> statistics() const;
  void restore(const std::vector<Tensor>& statistics) const;

 private:
  struct Norm {
    std::string path;
    Tensor mean, var;
    int64_t place;  // in the order of the modules of an evaluation
  };
  void renew(const Norm& norm);

  Learner& learner_;
  const std::span<const SampleBatch> samples_;
  std::vector<Norm> norms_;
  std::map<std::string, int64_t> places_;
};

}  // namespace bitgrad::detail
