// What all observers share: checks, the range [low, high] of each block, and the count of batches.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "bitgrad/quant/observer.h"

namespace bitgrad::detail {

class ObserverBase : public Observer {
 public:
  // blocks: of the granularity; channels: whether more than one block can be served.
  ObserverBase(std::string_view name, const QuantSpec& spec, int64_t features, bool channels);

  std::string_view name() const final { return name_; }
  void observe(const Tensor& x) final;
  bool ready() const final { return *batches_.as<int64_t>() > 0; }
  QuantParams params(const QuantSpec& spec) const final;
  std::vector<State> state() const override;

 protected:
  // The low and high numbers of one batch x, of each block. Zeros are +0.
  virtual void take(const Tensor& x, std::span<const float> low, std::span<const float> high) = 0;
  // The range that the scales are made of; by default the observed one.
  virtual void narrow(const QuantSpec&, std::span<float>, std::span<float>) const {}

  // low = min(low, new), high = max(high, new); the first batch sets.
  void widen(std::span<const float> low, std::span<const float> high);
  std::span<float> low() const { return {low_.as<float>(), static_cast<size_t>(low_.numel())}; }
  std::span<float> high() const { return {high_.as<float>(), static_cast<size_t>(high_.numel())}; }

 private:
  void check(const QuantSpec& spec) const;

  std::string_view name_;
  int64_t features_;
  bool channels_;
  Granularity granularity_;
  Tensor low_, high_, batches_;
};

// The range cut to [-t, t]. Both ends are clamped: numbers that all lie beyond t leave a range of one point, t.
inline void clip_range(float t, float& low, float& high) {
  low = std::clamp(low, -t, t);
  high = std::clamp(high, -t, t);
}

}  // namespace bitgrad::detail
