// Observers: find the range of activations over many batches, so that scales can be fixed. docs/numerics.md section 2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

struct ObserverSpec {
  std::string name = "moving_average";  // min_max | moving_average | percentile | mse
  float momentum = 0.99f;               // moving_average: r = momentum * r + (1 - momentum) * new; the first batch sets
  float percentile = 99.99f;            // percentile: of abs x, in (0, 100]
  friend bool operator==(const ObserverSpec&, const ObserverSpec&) = default;
};

// What an observer remembers is in named tensors (fp32 or int64), which the owner saves; to resume it copies the saved
// numbers into them.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual std::string_view name() const = 0;
  // Takes one batch x [n, f] fp32 into account. x must be finite, else Error(kNonFinite). Empty x changes nothing.
  virtual void observe(const Tensor& x) = 0;
  // Whether a batch was observed.
  virtual bool ready() const = 0;
  // Scales of the observed range by the scheme of `spec`. Throws Error before the first batch.
  virtual QuantParams params(const QuantSpec& spec) const = 0;

  // min_max, moving_average: low, high fp32 [blocks], batches int64 [1]. percentile, mse: also counts int64 [2048] of
  // abs x (mse: [4096], x >= 0, then x < 0) and exponent int64 [1]. The tensors share the observer's bytes.
  struct State {
    std::string_view name = {};
    Tensor tensor = {};
  };
  virtual std::vector<State> state() const = 0;
};

std::vector<std::string_view> observer_names();
// Throws Error for an unknown name, for a value out of range, for a scheme without from_range, and for a granularity
// that the observer does not serve: min_max and moving_average serve tensor and channel (axis 1, `features` blocks);
// percentile and mse serve tensor.
std::unique_ptr<Observer> make_observer(const ObserverSpec& observer, const QuantSpec& spec, int64_t features);

}  // namespace bitgrad
