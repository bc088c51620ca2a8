// Common base of the observers: checks, the range [low, high] of each block, and the number of batches.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "bitgrad/quant/quantizer.h"
#include "quant/map/observe.h"

namespace bitgrad::detail {

class ObserverBase : public Observer {
 public:
  // `channels`: whether granularity channel(1) is supported, with one block per feature.
  ObserverBase(std::string_view name, const QuantSpec& spec, int64_t features, bool channels);

  std::string_view name() const final { return name_; }
  void observe(const Tensor& x, bool calibrating = false) final;
  // On a device, reads the number of batches back until the first batch was observed.
  bool ready() const final;
  QuantParams params(const QuantSpec& spec) const final;
  std::vector<State> state() const override;

 protected:
  // A batch x with the minimum and maximum of each of its blocks.
  struct Batch {
    const Tensor &x, &low, &high;
    const uint32_t* bad;  // set: x contains NaN or Inf and must be ignored; nullptr: x is finite
  };
  // nullopt: the range widens; otherwise the momentum of a moving average.
  virtual std::optional<float> momentum() const { return std::nullopt; }
  // Additional state that the observer updates from a batch.
  virtual void consume(const Batch&) {}
  // The range from which scales are computed; by default the observed one.
  struct Range {
    Tensor low, high;
  };
  virtual Range narrow(const QuantSpec&, const Range& observed) const { return observed; }

 private:
  void check(const QuantSpec& spec) const;

  std::string_view name_;
  int64_t features_;
  bool channels_;
  Granularity granularity_;
  Tensor low_, high_, batches_;
  mutable bool seen_ready_ = false;
};

}  // namespace bitgrad::detail
