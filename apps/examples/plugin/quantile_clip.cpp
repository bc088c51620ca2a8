// Scheme `quantile_clip`: t = the value that the fraction `quantile` of abs x does not exceed; s = max(t / qmax,
// 2^-126); code = clamp(rint(x * (1/s)), -qmax, qmax). The kernels compute the codes, and the clip rule of the backward
// pass follows from the range of the codes. apps/examples/custom_quantizer.cpp registers it in a program.
#include <algorithm>
#include <cmath>

#include "bitgrad/quant/quantizer.h"
#include "parts.h"

using namespace bitgrad;

namespace rings {
namespace {

class QuantileClip final : public Quantizer {
 public:
  std::string_view name() const override { return "quantile_clip"; }
  std::vector<Key> keys() const override {
    return {{.name = "quantile",
             .type = Key::Type::kNumber,
             .range = "(0, 1]",
             .standard = "0.8",
             .doc = "part of abs x that is not clipped"}};
  }
  void check(const QuantSpec& spec, bool) const override {
    const DTypeInfo& info = spec.dtype.info();
    require(info.kind == DTypeKind::kInt && info.qmax > 0, name(), "dtype: got ", spec.dtype,
            ", expected a signed integer, such as int2");
    const Granularity& g = spec.granularity;
    require(g.kind == Granularity::kTensor || (g.kind == Granularity::kChannel && g.axis == 0), name(),
            "granularity: got ", g, ", expected tensor or channel(0)");
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    const int64_t qmax = spec.dtype.info().qmax;
    return {CodeRule::kInverse, -qmax, qmax};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const double part = values_of_keys(spec).number("quantile");
    const bool per_tensor = spec.granularity.kind == Granularity::kTensor;
    const int64_t blocks = scale_count(spec.granularity, x.rows(), x.cols());
    const int64_t rows = per_tensor ? x.rows() : 1, stride = x.stride() / static_cast<int64_t>(sizeof(float));
    const auto qmax = static_cast<float>(spec.dtype.info().qmax);
    const Tensor scale = Tensor::empty({blocks}, dtypes::fp32, MemoryKind::kQuantState);
    for (int64_t block = 0; block < blocks; ++block) {
      std::vector<float> sizes;
      for (int64_t r = block * rows; r < (block + 1) * rows; ++r)
        for (int64_t c = 0; c < x.cols(); ++c) sizes.push_back(std::fabs(x.as<float>()[r * stride + c]));
      scale.as<float>()[block] = std::max(quantile(sizes, part) / qmax, 0x1p-126f);
    }
    QuantParams params;
    params.scheme = name();
    params.granularity = spec.granularity;
    params.scale = std::make_shared<const Tensor>(scale);
    return params;
  }

 private:
  static float quantile(std::vector<float>& sizes, double part) {
    if (sizes.empty()) return 0;
    const auto at = sizes.begin() + static_cast<int64_t>(static_cast<double>(sizes.size() - 1) * part);
    std::nth_element(sizes.begin(), at, sizes.end());
    return *at;
  }
};

}  // namespace

void register_scheme() { register_quantizer(std::make_unique<QuantileClip>()); }

}  // namespace rings
