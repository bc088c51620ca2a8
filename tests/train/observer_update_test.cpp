// Observers that follow the microbatches of a window at its end.
#include <optional>

#include "nn/activation_quantizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kWindow = 3;

std::unique_ptr<Learner> observing(const std::string& observer, const Granularity& granularity, ObserverUpdate update) {
  LayerSpec quantize = plain_spec("quantize");
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::int8;
  quantize.activation->spec.scheme = "symmetric";
  quantize.activation->spec.granularity = granularity;
  quantize.activation->observer = ObserverSpec{.name = observer, .momentum = 0.75f};
  OptimizerSpec sgd;
  auto learner = std::make_unique<Learner>(
      make_sequential({quantize, linear_spec(3, dtypes::int4, "symmetric")}, kFeatures),
      find_loss("softmax_cross_entropy"), sgd, RequantPolicy{kWindow, kWindow}, [](int64_t) { return 0.0f; }, 3);
  learner->set_observer_update(update);
  return learner;
}

const ActivationQuantizer& quantizer_of(Learner& learner) {
  return *dynamic_cast<const ActivationQuantizer*>(learner.model().find("0"));
}

Tensor batch(int64_t i) { return random_tensor({4, kFeatures}, dtypes::fp32, static_cast<uint64_t>(50 + i)); }

}  // namespace

TEST_CASE("observers that wait follow the microbatches of a window in order at its end") {
  for (const std::string observer : {"min_max", "moving_average"})
    for (const Granularity& granularity : {Granularity::tensor(), Granularity::channel(1)}) {
      const auto learner = observing(observer, granularity, ObserverUpdate::kWindow);
      const ActivationQuantizer& quantizer = quantizer_of(*learner);
      const auto reference = make_observer(*quantizer.quant().observer, quantizer.quant().spec, kFeatures);
      std::vector<float> scales;  // of the codes of each microbatch
      learner->state().on_forward = [&](const std::string& path, const Tensor&, const Tensor& codes) {
        if (path == quantizer.path()) scales = codes.quant()->scale->to_vector();
      };
      for (int64_t i = 0; i < 3 * kWindow; ++i) {
        if (i % kWindow == 0)
          for (int64_t b = i - kWindow; b >= 0 && b < i; ++b) reference->observe(batch(b));
        learner->microbatch(batch(i), std::vector<int32_t>{0, 1, 2, 0});
        if (i < kWindow) continue;  // of the batch itself: nothing was observed
        CHECK(scales == reference->params(quantizer.quant().spec).scale->to_vector());
      }
      for (int64_t b = 2 * kWindow; b < 3 * kWindow; ++b) reference->observe(batch(b));
      for (size_t part = 0; part < 3; ++part)
        CHECK(quantizer.observer()->state()[part].tensor.elements() == reference->state()[part].tensor.elements());
    }
}

TEST_CASE("a dropped window leaves no ranges, and the update of observers changes between windows") {
  const auto learner = observing("moving_average", Granularity::tensor(), ObserverUpdate::kWindow);
  learner->microbatch(batch(0), std::vector<int32_t>{0, 1, 2, 0});
  learner->drop_window();
  CHECK_FALSE(quantizer_of(*learner).observer()->ready());
  for (int64_t i = 1; i <= kWindow; ++i) learner->microbatch(batch(i), std::vector<int32_t>{0, 1, 2, 0});
  CHECK(quantizer_of(*learner).observer()->state()[2].tensor.item() == kWindow);
  learner->microbatch(batch(5), std::vector<int32_t>{0, 1, 2, 0});
  CHECK(contains(error_of([&] { learner->set_observer_update(ObserverUpdate::kMicrobatch); }), "inside a window"));
  learner->drop_window();
  learner->set_observer_update(ObserverUpdate::kMicrobatch);
  learner->microbatch(batch(6), std::vector<int32_t>{0, 1, 2, 0});
  CHECK(quantizer_of(*learner).observer()->state()[2].tensor.item() == kWindow + 1);
}
