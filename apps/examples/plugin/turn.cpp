// Transform `turn`: rotates each sample of two values about the origin by its own random angle, drawn anew in each
// epoch.
#include "bitgrad/data/transform.h"

#include <cmath>

#include "bitgrad/base/error.h"
#include "parts.h"

using namespace bitgrad;

namespace rings {
namespace {

class Turn final : public Transform {
 public:
  explicit Turn(double degrees) : degrees_(degrees) {}
  void apply(const RandomStream& draws, int64_t index, const Shape& sample, float* x) const override {
    require(sample.numel() == 2, "turn", "turns samples of two values, got ", sample);
    constexpr double kRadians = 3.14159265358979323846 / 180;
    const double angle = kRadians * degrees_ * (2.0 * draws.uniform(static_cast<uint64_t>(index)) - 1.0);
    const double a = x[0], b = x[1];
    x[0] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    x[1] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
  }
  int64_t draws_per_sample(const Shape&) const override { return 1; }

 private:
  double degrees_;
};

}  // namespace

void register_the_transform() {
  TransformKind kind;
  kind.name = "turn";
  kind.doc = "turns a point about the origin";
  kind.keys = {{"degrees", Key::Type::kNumber, "[0, 180]", "10", "largest angle to each side"}};
  kind.make = [](const Attributes& keys) { return std::make_shared<Turn>(keys.number("degrees")); };
  register_transform(std::move(kind));
}

}  // namespace rings
