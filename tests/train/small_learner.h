// A learner of a few hundred numbers, with every kind of tensor that a checkpoint holds.
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"
#include "support/numbers.h"

namespace bitgrad::test {

inline LayerSpec linear_spec(int64_t out, DType dtype, const std::string& scheme, const Granularity& granularity = {}) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = true;
  spec.weight.init = {"glorot_uniform"};
  if (dtype.is_float()) return spec;
  spec.weight.quant.emplace();
  spec.weight.quant->dtype = dtype;
  spec.weight.quant->scheme = scheme;
  spec.weight.quant->granularity = granularity;
  return spec;
}
inline LayerSpec plain_spec(const std::string& kind) {
  LayerSpec spec;
  spec.kind = kind;
  return spec;
}

inline constexpr int64_t kFeatures = 5;

// 5 -> 4 (int4 affine per channel: scales and integer zeros) -> batch norm -> 3 (uint3 minmax_offset: real offsets) ->
// 3 (`last`).
inline std::unique_ptr<Learner> small_learner(DType last = dtypes::bint1, const std::string& scheme = "binary",
                                              uint64_t seed = 3, int64_t accumulate = 1, int64_t every = 1) {
  OptimizerSpec adam;
  adam.name = "adam";
  const auto model = make_sequential(
      {linear_spec(4, dtypes::int4, "affine", Granularity::channel(0)), plain_spec("batch_norm"), plain_spec("relu"),
       linear_spec(3, dtypes::uint3, "minmax_offset"), linear_spec(3, last, scheme)},
      kFeatures);
  return std::make_unique<Learner>(
      model, find_loss("softmax_cross_entropy"), adam, RequantPolicy{accumulate, every}, [](int64_t) { return 0.05f; },
      seed);
}

inline void train_some(Learner& learner, int64_t microbatches) {
  const std::vector<int32_t> labels{0, 1, 2, 0, 1, 2};
  for (int64_t i = 0; i < microbatches; ++i)
    learner.microbatch(
        random_tensor({6, kFeatures}, dtypes::fp32, static_cast<uint64_t>(100 + learner.state().microbatch)), labels);
}

}  // namespace bitgrad::test
