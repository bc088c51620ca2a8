// Observers: track the range of activations over many batches, so that scales can be fixed. docs/numerics.md section 2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

// The state of an observer is a list of named tensors (fp32 or int64), which its owner saves. To resume, the owner
// copies the saved values into them.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual std::string_view name() const = 0;
  // Updates the range with one batch x, fp32 or bf16 [n, f]. An empty x has no effect. Throws Error(kNonFinite) for NaN
  // or Inf. `calibrating`: x is a part of a set of samples whose parts count the same, so a moving average, too, widens
  // to all of them.
  virtual void observe(const Tensor& x, bool calibrating = false) = 0;
  // Whether any non-empty batch was observed.
  virtual bool ready() const = 0;
  // Scales for the observed range by the scheme of `spec`. Throws Error if no batch was observed yet.
  virtual QuantParams params(const QuantSpec& spec) const = 0;

  // min_max, moving_average: low and high, fp32 [blocks]; batches, int64 [1]. percentile, mse: also counts of abs x,
  // int64 [2048] (mse: [4096], x >= 0 followed by x < 0), and exponent, int64 [1]. They share the observer's memory.
  struct State {
    std::string_view name = {};
    Tensor tensor = {};
  };
  virtual std::vector<State> state() const = 0;
};

std::vector<std::string_view> observer_names();
// Throws Error for an unknown name, a value out of range, a scheme without from_range, or a granularity that the
// observer does not support: min_max and moving_average support tensor and channel (axis 1, `features` blocks);
// percentile and mse only tensor.
std::unique_ptr<Observer> make_observer(const ObserverSpec& observer, const QuantSpec& spec, int64_t features);

}  // namespace bitgrad
