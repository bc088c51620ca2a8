// int8 gradients on drawn normal data: unbiased over stochastic draws, and close to those of fp32 mode.
#include <cmath>

#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/quantizer.h"
#include "support/catch.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kRows = 64, kFeatures = 256, kOutputs = 256;

Tensor normal_tensor(const Shape& shape, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  std::vector<double> numbers;
  for (int64_t i = 0; i < shape.numel(); ++i) numbers.push_back(draws.normal(static_cast<uint64_t>(i)));
  return Tensor::from_elements(shape, dtypes::fp32, numbers);
}

struct Layer {
  std::string_view name;
  DType dtype;
  std::string_view scheme;
  Granularity granularity;
};
const Layer kLayers[] = {{"per tensor", dtypes::int8, "symmetric", Granularity::tensor()},
                         {"per channel with zero points", dtypes::int8, "affine", Granularity::channel(0)},
                         {"per group", dtypes::int4, "symmetric", Granularity::groups(64)}};

struct Problem {
  Tensor x, w, gy;
  explicit Problem(const Layer& layer)
      : x(normal_tensor({kRows, kFeatures}, 901)), gy(normal_tensor({kRows, kOutputs}, 902)) {
    QuantSpec spec;
    spec.dtype = layer.dtype;
    spec.scheme = layer.scheme;
    spec.granularity = layer.granularity;
    w = quantize_dynamic(spec, normal_tensor({kOutputs, kFeatures}, 903));
  }
  // Gradients of x and w, one after the other.
  std::vector<float> gradients(ProductMode mode, const RandomStream* sr) const {
    DynamicLinearOptions options;
    options.gx = options.gw = mode;
    options.gx_per_group = true;
    options.gradient_sr = sr;
    AccumulateSink sx, sw;
    Tape tape;
    tape.backward(
        {quantized_linear_dynamic(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32), {}, options)},
        {gy});
    std::vector<float> out(sx.grad().as<float>(), sx.grad().as<float>() + sx.grad().numel());
    out.insert(out.end(), sw.grad().as<float>(), sw.grad().as<float>() + sw.grad().numel());
    return out;
  }
};

// SQNR in dB of got[begin, end).
double sqnr(const std::vector<float>& got, const std::vector<float>& expected, size_t begin, size_t end) {
  double noise = 0, signal = 0;
  for (size_t i = begin; i < end; ++i) {
    noise += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
    signal += double{expected[i]} * expected[i];
  }
  return 10 * std::log10(signal / noise);
}

}  // namespace

TEST_CASE("int8 gradients are more than 30 dB above their noise, to nearest and stochastic") {
  constexpr size_t kSplit = kRows * kFeatures;
  const RandomStream draws{21, Purpose::kGradient, 4, 0};
  for (const Layer& layer : kLayers) {
    const Problem problem(layer);
    const std::vector<float> expected = problem.gradients(ProductMode::kFp32, nullptr);
    for (const RandomStream* sr : {static_cast<const RandomStream*>(nullptr), &draws}) {
      const std::vector<float> got = problem.gradients(ProductMode::kInt8, sr);
      INFO(layer.name << (sr ? ", stochastic" : ", nearest"));
      CHECK(sqnr(got, expected, 0, kSplit) > 30);
      CHECK(sqnr(got, expected, kSplit, got.size()) > 30);
    }
  }
}

TEST_CASE("int8 gradients are unbiased over 1000 stochastic draws", "[slow]") {
  constexpr int kDraws = 1000;
  for (const Layer& layer : kLayers) {
    const Problem problem(layer);
    const std::vector<float> expected = problem.gradients(ProductMode::kFp32, nullptr);
    // Sums of the distance to the expected gradient: no digits are lost to its size.
    std::vector<double> sum(expected.size(), 0.0), squares(expected.size(), 0.0);
    for (int d = 0; d < kDraws; ++d) {
      const RandomStream draws{22, Purpose::kGradient, 4, static_cast<uint32_t>(d)};
      const std::vector<float> got = problem.gradients(ProductMode::kInt8, &draws);
      for (size_t i = 0; i < got.size(); ++i) {
        const double distance = double{got[i]} - expected[i];
        sum[i] += distance;
        squares[i] += distance * distance;
      }
    }
    double total = 0, largest = 0, constant = 0;
    int64_t counted = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      const double mean = sum[i] / kDraws, variance = (squares[i] - sum[i] * mean) / (kDraws - 1);
      if (variance <= 0) {
        constant = std::max(constant, std::fabs(mean) / std::max(1.0, std::fabs(double{expected[i]})));
        continue;
      }
      const double z = mean / std::sqrt(variance / kDraws);
      total += z;
      largest = std::max(largest, std::fabs(z));
      ++counted;
    }
    INFO(layer.name << ": mean z " << total / static_cast<double>(counted) << ", largest " << largest);
    CHECK(counted > 80000);
    CHECK(std::fabs(total / static_cast<double>(counted)) < 0.05);
    CHECK(largest < 6);
    CHECK(constant <= 1e-6);
  }
}

// Standard deviation 0: what int8 holds exactly is the same in every draw.
TEST_CASE("gradients that int8 holds exactly have no noise, and equal those of fp32 mode") {
  const Tensor x = normal_tensor({16, 96}, 911), gy = Tensor::zeros({16, 48}, dtypes::fp32);
  for (int64_t i = 0; i < gy.numel(); ++i) gy.as<float>()[i] = static_cast<float>(i * 7 % 3 - 1);
  QuantSpec per_tensor;
  per_tensor.dtype = dtypes::int8;
  per_tensor.scheme = "absmax";
  const Tensor w = quantize_dynamic(per_tensor, normal_tensor({48, 96}, 912));
  const auto gradients = [&](ProductMode mode, const RandomStream* sr) {
    DynamicLinearOptions options;
    options.activation = per_tensor;
    options.activation.ste = SteRule::kIdentity;
    options.gx = options.gw = mode;
    options.gradient_sr = sr;
    AccumulateSink sx, sw;
    Tape tape;
    tape.backward(
        {quantized_linear_dynamic(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32), {}, options)},
        {gy});
    std::vector<double> out = sx.grad().elements();
    const std::vector<double> gw = sw.grad().elements();
    out.insert(out.end(), gw.begin(), gw.end());
    return out;
  };
  const std::vector<double> expected = gradients(ProductMode::kFp32, nullptr);
  const std::vector<double> nearest = gradients(ProductMode::kInt8, nullptr);
  double wrong = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    wrong += (nearest[i] - expected[i]) * (nearest[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  CHECK(size > 0);
  CHECK(std::sqrt(wrong / size) <= 1e-6);
  for (uint32_t d = 0; d < 50; ++d) {
    const RandomStream draws{23, Purpose::kGradient, 4, d};
    CHECK(gradients(ProductMode::kInt8, &draws) == nearest);
  }
}
