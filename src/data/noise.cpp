// x + sd * z, with z standard normal, drawn for each value in each epoch (Bishop 1995, "Training with noise is
// equivalent to Tikhonov regularization").
#include "bitgrad/data/transform.h"

namespace bitgrad::data {
namespace {

class Noise final : public Transform {
 public:
  explicit Noise(double sd) : sd_(static_cast<float>(sd)) {}
  void apply(const RandomStream& draws, int64_t index, const Shape& sample, float* x) const override {
    const int64_t n = sample.numel(), first = index * n;
    for (int64_t i = 0; i < n; ++i) {
      const float noise = sd_ * draws.normal(static_cast<uint64_t>(first + i));
      x[i] = x[i] + noise;
    }
  }

 private:
  float sd_;
};

}  // namespace

TransformKind noise_transform() {
  return {"noise",
          "adds normal noise to each value, redrawn in each epoch",
          {{"sd", Key::Type::kNumber, "(0, 1e30]", "!", "standard deviation of the noise"}},
          [](const Attributes& keys) { return std::make_shared<Noise>(keys.number("sd")); }};
}

}  // namespace bitgrad::data
