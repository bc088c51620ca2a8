// What all observers share: checks, the range [low, high] of each block, and the count of batches.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "bitgrad/quant/observer.h"
#include "quant/map/observe.h"

namespace bitgrad::detail {

class ObserverBase : public Observer {
 public:
  // blocks: of the granularity; channels: whether more than one block can be served.
  ObserverBase(std::string_view name, const QuantSpec& spec, int64_t features, bool channels);

  std::string_view name() const final { return name_; }
  void observe(const Tensor& x) final;
  // On a device the number of batches is read until there is one.
  bool ready() const final;
  QuantParams params(const QuantSpec& spec) const final;
  std::vector<State> state() const override;

 protected:
  // One batch x, and the least and the largest number of each of its blocks.
  struct Batch {
    const Tensor &x, &low, &high;
    const uint32_t* bad;  // set: x holds NaN or Inf, and changes nothing; nullptr: it does not
  };
  // nullopt: the range widens; else the momentum of an average.
  virtual std::optional<float> momentum() const { return std::nullopt; }
  // What else the observer keeps of a batch.
  virtual void consume(const Batch&) {}
  // The range that the scales are made of; by default the observed one.
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
