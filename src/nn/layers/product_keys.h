// Keys `compute` and `backward` of layers that multiply by a weight (LayerKind::product).
#pragma once

#include <string>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/state.h"

namespace bitgrad::detail {

// Modes of the backward products and their draws, keyed by path and microbatch.
class ProductKeys {
 public:
  explicit ProductKeys(const LayerSpec& spec) : stochastic_(spec.product.rounding == Rounding::kStochastic) {
    modes_.gx = spec.product.gx;
    modes_.gw = spec.product.gw;
    modes_.gx_per_group = spec.product.per_group;
  }
  const ProductModes& modes() const { return modes_; }
  // `draws` must outlive the call that uses the modes.
  ProductModes modes(const RandomStream& draws) const {
    ProductModes modes = modes_;
    if (stochastic_) modes.sr = &draws;
    return modes;
  }
  RandomStream draws(const std::string& path, const StepState& state) const {
    return live_by_microbatch({state.seed, Purpose::kGradient, site_id(path), static_cast<uint32_t>(state.microbatch)});
  }

 private:
  ProductModes modes_;
  bool stochastic_;
};

}  // namespace bitgrad::detail
