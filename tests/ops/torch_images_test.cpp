// Pools, prelu and batch norm of images beside PyTorch in float64: tests/golden/torch_images.json, written by
// scripts/torch_images_golden.py, which also says how the inputs are made.
#include <cmath>
#include <fstream>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/json.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/numbers.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor numbers_of(const Shape& shape, uint64_t state, bool ties, DType dtype) {
  std::vector<double> out(static_cast<size_t>(shape.numel()));
  for (double& v : out) {
    state = 6364136223846793005u * state + 1442695040888963407u;
    v = (static_cast<double>(state >> 40) - 0x1p23) * 0x1p-23;
    if (ties) v = std::floor(2 * v);
  }
  return Tensor::from_elements(shape, dtype, out);
}

std::vector<double> hex(const Json& list) {
  std::vector<double> out;
  for (const Json& v : list) out.push_back(std::strtod(v.text().c_str(), nullptr));
  return out;
}
Shape shape_of(const Json& list) {
  std::vector<int64_t> dims;
  for (const Json& v : list) dims.push_back(v.get<int64_t>());
  return Shape(dims);
}
void check_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    REQUIRE(std::fabs(got[i] - want[i]) <= tolerance * std::max(1.0, std::fabs(want[i])));
}

PoolOptions pool_of(const Json& of) {
  PoolOptions o;
  for (size_t i = 0; i < 2; ++i) {
    o.size[i] = of["size"][i].get<int64_t>();
    o.stride[i] = of["stride"][i].get<int64_t>();
  }
  for (size_t i = 0; i < 4; ++i) o.padding[i] = of["padding"][i].get<int64_t>();
  return o;
}
Tensor fp32_of(const Json& list) {
  const std::vector<double> values = hex(list);
  return Tensor::from_elements({static_cast<int64_t>(values.size())}, dtypes::fp32, values);
}

NormOptions norm_of(const Json& of) {
  NormOptions o;
  o.eps = 1e-3f;
  o.momentum = 0.25f;
  o.training = of["training"].get<bool>();
  o.running_mean = fp32_of(of["running"][0]);
  o.running_var = fp32_of(of["running"][1]);
  return o;
}

Var result(const Json& of, const std::vector<Var>& v, const NormOptions& norm) {
  const std::string& name = of["name"].text();
  if (name == "max_pool") return max_pool(v[0], pool_of(of));
  if (name == "avg_pool") return avg_pool(v[0], pool_of(of));
  if (name == "prelu") return prelu(v[0], v[1]);
  return batch_norm(v[0], v[1], v[2], norm);
}

// eps is a float here and a double there: 1e-3f has an error of 5e-8.
double tolerance_of(const Json& of, DType dtype) {
  if (dtype == dtypes::fp32) return 2e-5;
  return of["name"].text() == "batch_norm" ? 1e-7 : 1e-14;
}

void check_case(const Json& of, DType dtype) {
  const Shape shape = shape_of(of["shape"]);
  const Tensor x = numbers_of(shape, 1, of["ties"].get<bool>(), dtype);
  std::vector<AccumulateSink> sinks(of["gp"].size() + 1);
  Tape tape;
  std::vector<Var> leaves{tape.leaf(x, &sinks[0], dtype)};
  for (size_t i = 1; i < sinks.size(); ++i)
    leaves.push_back(tape.leaf(numbers_of({shape.cols()}, 2 + i, false, dtype), &sinks[i], dtype));
  const bool norm = of["name"].text() == "batch_norm";
  const NormOptions options = norm ? norm_of(of) : NormOptions{};
  const Var y = result(of, leaves, options);
  REQUIRE(y.shape() == shape_of(of["y_shape"]));
  tape.backward({y}, {numbers_of(y.shape(), 2, false, dtype)});
  const double tolerance = tolerance_of(of, dtype);
  check_close(y.value().elements(), hex(of["y"]), tolerance);
  check_close(sinks[0].grad().elements(), hex(of["gx"]), tolerance);
  for (size_t i = 1; i < sinks.size(); ++i) check_close(sinks[i].grad().elements(), hex(of["gp"][i - 1]), tolerance);
  if (!norm) return;
  check_close(options.running_mean.elements(), hex(of["running_after"][0]), 1e-6);
  check_close(options.running_var.elements(), hex(of["running_after"][1]), 1e-6);
}

}  // namespace

TEST_CASE("pools with ties, means without pads, prelu and batch norm of images are PyTorch's, gradients too") {
  std::ifstream in(source_path("tests/golden/torch_images.json"));
  const Json golden = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  REQUIRE(golden["cases"].size() == 9);
  for (const Json& of : golden["cases"])
    for (const DType dtype : {dtypes::fp64, dtypes::fp32}) {
      INFO(of["name"].text() << ' ' << shape_of(of["shape"]) << ' ' << dtype);
      const DeviceGuard where(device_for(dtype));
      check_case(of, dtype);
    }
}
