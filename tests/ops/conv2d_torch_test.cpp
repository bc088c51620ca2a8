// conv2d, max_pool and a block of IR-Net beside PyTorch in float64 (tests/golden/torch_conv.json).
#include <map>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/ops/unary.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/torch_conv.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Conv2dOptions torch_options(const Json& c) {
  Conv2dOptions options;
  for (size_t i = 0; i < 2; ++i) {
    options.kernel[i] = c["kernel"][i].get<int64_t>();
    options.stride[i] = c["stride"][i].get<int64_t>();
    options.dilation[i] = c["dilation"][i].get<int64_t>();
  }
  for (size_t i = 0; i < 4; ++i) options.padding[i] = c["padding"][i].get<int64_t>();
  options.pad_value = c["pad_value"].get<int>();
  options.groups = c["groups"].get<int64_t>();
  return options;
}

// Largest distance, relative to the largest of the numbers expected.
double torch_error(const Tensor& got, const Json& expected) {
  const std::vector<double> g = got.elements(), e = expected.get<std::vector<double>>();
  REQUIRE(g.size() == e.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    error = std::max(error, std::fabs(g[i] - e[i]));
    size = std::max(size, std::fabs(e[i]));
  }
  return error / size;
}

// sign(x) * sign(standardized w) * 2^k, 3x3, padding 1, with IR-Net's slopes of sharpness t.
Var ir_conv(const Var& x, const Var& w, int64_t stride, float t) {
  QuantSpec of_x, of_w;
  of_x.dtype = of_w.dtype = dtypes::bint1;
  of_x.scheme = "binary";
  of_w.scheme = "standardized_binary";
  of_w.granularity = Granularity::channel(0);
  of_x.ste = of_w.ste = SteRule::kTanh;
  of_x.ste_t = of_w.ste_t = t;
  return conv2d(quantize(x, of_x), quantize(w, of_w), Var(),
                {.kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1, 1, 1}});
}

// Batch norm over the pixels.
Var pixel_norm(const Var& x, const Var& gamma, const Var& beta) {
  const Shape shape = x.shape();
  NormOptions options;
  options.running_mean = Tensor::zeros({shape.cols()}, dtypes::fp32);
  options.running_var = Tensor::full({shape.cols()}, dtypes::fp32, 1);
  return reshape(batch_norm(reshape(x, {shape.rows(), shape.cols()}), gamma, beta, options), shape);
}

}  // namespace

TEST_CASE("convolutions and their gradients are PyTorch's, exactly, in fp64, fp32 and of signs") {
  const Json golden = torch_conv_golden();
  REQUIRE(golden["conv"].size() == 11);
  int of_signs = 0;
  for (const Json& c : golden["conv"]) {
    const auto shape = c["shape"].get<std::vector<int64_t>>();  // n, h, w, c, o
    const Conv2dOptions options = torch_options(c);
    const Shape image{shape[0], shape[1], shape[2], shape[3]},
        weights{shape[4], options.kernel[0] * options.kernel[1] * shape[3] / options.groups},
        result{shape[0], c["out"][0].get<int64_t>(), c["out"][1].get<int64_t>(), shape[4]};
    const bool sign = c["sign"].get<bool>();
    const auto seed = c["seed"].get<uint64_t>();
    of_signs += sign;
    for (const DType d : {dtypes::fp64, dtypes::fp32, dtypes::bint1}) {
      if ((d == dtypes::bint1 && !sign) || (d != dtypes::bint1 && options.pad_value != 0)) continue;
      const DType f = d == dtypes::fp64 ? d : dtypes::fp32;
      const DeviceGuard where(device_for(d));
      AccumulateSink sx, sw, sb;
      Tape tape;
      const Tensor x = sign ? torch_signs(seed, image, d) : torch_eighths(seed, image, d);
      const Var y = conv2d(tape.leaf(x, &sx, f), tape.leaf(torch_eighths(seed + 1, weights, f), &sw, f),
                           tape.leaf(torch_eighths(seed + 2, {shape[4]}, f), &sb, f), options);
      INFO("seed " << seed << ", x " << x);
      REQUIRE(y.shape() == result);
      tape.backward({y}, {torch_eighths(seed + 3, result, f)});
      CHECK(y.value().elements() == c["y"].get<std::vector<double>>());
      CHECK(sx.grad().elements() == c["gx"].get<std::vector<double>>());
      CHECK(sw.grad().elements() == c["gw"].get<std::vector<double>>());
      CHECK(sb.grad().elements() == c["gbias"].get<std::vector<double>>());
    }
  }
  CHECK(of_signs == 3);
}

TEST_CASE("max pools and their gradients are PyTorch's, ties included, of floats, bytes and signs") {
  const Json golden = torch_conv_golden();
  REQUIRE(golden["pool"].size() == 8);
  int ties = 0;
  for (const Json& c : golden["pool"]) {
    const auto shape = c["shape"].get<std::vector<int64_t>>();
    const Shape image{shape[0], shape[1], shape[2], shape[3]},
        result{shape[0], c["out"][0].get<int64_t>(), c["out"][1].get<int64_t>(), shape[3]};
    const auto size = c["size"].get<int64_t>(), stride = c["stride"].get<int64_t>(),
               padding = c["padding"].get<int64_t>();
    const bool sign = c["sign"].get<bool>();
    const auto seed = c["seed"].get<uint64_t>();
    ties += sign;
    for (const DType d : {dtypes::fp64, dtypes::fp32, dtypes::bf16, dtypes::int8, dtypes::bint1}) {
      if (d == dtypes::bint1 && !sign) continue;
      const DType f = d == dtypes::fp64 ? d : dtypes::fp32;
      const DeviceGuard where(device_for(d));
      Tensor x = sign ? torch_signs(seed, image, f) : torch_eighths(seed, image, f);
      std::vector<double> elements = x.elements(), y_expected = c["y"].get<std::vector<double>>();
      if (d == dtypes::int8) {
        for (double& e : elements) e *= 8;
        for (double& e : y_expected) e *= 8;
      }
      x = Tensor::from_elements(image, d, elements);
      AccumulateSink sink;
      Tape tape;
      const Var y =
          max_pool(tape.leaf(x, &sink, f), {{size, size}, {stride, stride}, {padding, padding, padding, padding}});
      INFO("seed " << seed << ", x " << x);
      REQUIRE(y.shape() == result);
      tape.backward({y}, {torch_eighths(seed + 1, result, f)});
      CHECK(y.value().elements() == y_expected);
      CHECK(sink.grad().elements() == c["gx"].get<std::vector<double>>());
    }
  }
  CHECK(ties == 4);
}

TEST_CASE("two units of IR-Net's binary ResNet have PyTorch's values and gradients") {
  const Json golden = torch_conv_golden();
  REQUIRE(golden["block"].size() == 2);
  for (const Json& c : golden["block"]) {
    const auto seed = c["seed"].get<uint64_t>();
    const std::map<std::string, Tensor> in = {
        {"x", torch_units(seed, {3, 6, 7, 6}, 2)}, {"shortcut", torch_units(seed + 1, {3, 3, 4, 10})},
        {"w1", torch_units(seed + 2, {10, 54})},   {"w2", torch_units(seed + 3, {10, 90})},
        {"gamma1", torch_units(seed + 4, {10})},   {"beta1", torch_units(seed + 5, {10})},
        {"gamma2", torch_units(seed + 6, {10})},   {"beta2", torch_units(seed + 7, {10})}};
    std::map<std::string, AccumulateSink> sinks;
    Tape tape;
    std::map<std::string, Var> v;
    for (const auto& [name, tensor] : in) v[name] = tape.leaf(tensor, &sinks[name], dtypes::fp32);
    const float t = c["t"].get<float>();
    const Var h = hardtanh(add(pixel_norm(ir_conv(v["x"], v["w1"], 2, t), v["gamma1"], v["beta1"]), v["shortcut"]));
    const Var y = hardtanh(add(pixel_norm(ir_conv(h, v["w2"], 1, t), v["gamma2"], v["beta2"]), h));
    tape.backward({y}, {torch_units(seed + 8, y.shape())});
    INFO("t " << t);
    CHECK(torch_error(y.value(), c["y"]) < 2e-6);
    REQUIRE(c["gradients"].size() == in.size());
    for (const auto& [name, gradient] : c["gradients"].members()) {
      INFO(name);
      CHECK(torch_error(sinks[name].grad(), gradient) < 5e-6);
    }
  }
}
