// Data set `rings`: points on rings around the origin; the class is the ring. Its keys seed and split also exist in the
// library's data sets.
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/dataset.h"
#include "parts.h"

using namespace bitgrad;

namespace rings {
namespace {

class Rings final : public Dataset {
 public:
  explicit Rings(const DatasetSpec& spec)
      : split_(spec.split),
        seed_(spec.seed),
        size_(spec.keys.integer("points")),
        rings_(spec.keys.integer("rings")),
        noise_(spec.keys.number("noise")) {}
  std::string name() const override { return "rings (" + split_ + ")"; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return {2}; }
  int64_t classes() const override { return rings_; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    const RandomStream draws{seed_, Purpose::kUser, site_id("rings " + split_), 0};
    const auto i = static_cast<uint64_t>(2 * index);
    const double angle = 6.283185307179586 * static_cast<double>(draws.uniform(i));
    *label = static_cast<int32_t>(index % rings_);
    const double off = noise_ * (static_cast<double>(draws.uniform(i + 1)) - 0.5);
    const double radius = (1.0 + *label + off) / static_cast<double>(rings_);
    x[0] = static_cast<float>(radius * std::cos(angle));
    x[1] = static_cast<float>(radius * std::sin(angle));
  }

 private:
  std::string split_;
  uint64_t seed_;
  int64_t size_, rings_;
  double noise_;
};

}  // namespace

void register_data() {
  DatasetFormat format;
  format.name = "rings";
  format.optional = {"seed", "split"};
  format.summary = "points of rings around the origin";
  format.keys = {
      {.name = "points", .range = "[1, 1000000]", .standard = "!", .doc = "number of samples"},
      {.name = "rings", .range = "[2, 10]", .standard = "3", .doc = "number of rings, which are the classes"},
      {.name = "noise", .type = Key::Type::kNumber, .range = "[0, 1]", .standard = "0.6", .doc = "width of a ring"}};
  format.create = [](const DatasetSpec& spec) { return std::make_unique<Rings>(spec); };
  register_dataset(std::move(format));
}

}  // namespace rings
