// The learned parts of a parameter's scheme (step, clip, offset): float parameters of one value per scale.
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

class LearnedParts {
 public:
  // Parts of zeros; `owner` is described and its scheme has some.
  explicit LearnedParts(const Parameter& owner);

  std::span<const std::unique_ptr<Parameter>> parts() const { return parts_; }
  // Gives the parts their paths, and the first values for the owner's values x.
  void initialize(const Tensor& x);
  // Fits steps without signal to the owner's master again (docs/numerics.md section 3).
  void refit(int64_t step);
  // How many steps refit has warned of, and that warning where another rank has fitted them.
  int64_t told() const { return *told_; }
  void tell(int64_t refitted) const;
  // The scales of their present values, as clones: codes keep the scales they were made with while the parts train on.
  std::shared_ptr<const QuantParams> params(int64_t step) const;
  // Takes the settings of learned parts from the owner's spec.
  void follow_spec();

 private:
  const QuantSpec& quant() const { return *owner_.spec().quant; }

  const Parameter& owner_;
  const Quantizer& quantizer_;
  std::vector<std::unique_ptr<Parameter>> parts_;
  std::shared_ptr<int64_t> told_ = std::make_shared<int64_t>(0);  // that steps were fitted again
};

}  // namespace bitgrad::detail
