// The moving average of a run's weights (train.ema). docs/numerics.md section 6.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad::detail {

inline constexpr const char* kAverageEnd = ".average";  // of names in files

// fp32 averages of masters, float parameters, learned parts and the running statistics of norms.
class Averages {
 public:
  explicit Averages(double decay);
  // Adds what began to train, at its present value, and drops what no longer does.
  void follow(Module& model);
  // After each optimizer step: a = decay a + (1 - decay) x.
  void update(Module& model);
  // Replaces the values of the model by the averages; codes are made of them by their schemes, with the draws of
  // `step`.
  void put_into(Module& model, uint64_t seed, int64_t step) const;
  // By "<path>.average".
  const std::map<std::string, Tensor>& state() const { return averages_; }
  // Parameters that train without a master: an average of codes is none.
  static std::vector<std::string> left_out(Module& model);

 private:
  const float part_, rest_;  // 1 - decay, decay
  std::map<std::string, Tensor> averages_;
};

}  // namespace bitgrad::detail
