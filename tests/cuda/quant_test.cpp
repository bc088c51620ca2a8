// Quantizers on a device: what the caller of a flag word sees, and schemes that a program registers.
#include <cmath>

#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/quantizer.h"
#include "cuda/same_as_cpu.h"
#include "quant/reference.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

std::vector<QuantSpec> every_spec() {
  std::vector<QuantSpec> out = all_specs();
  for (const QuantSpec& spec : special_specs()) out.push_back(spec);
  return out;
}

// Without numbers: 0.
Tensor numbers(const Shape& shape, float size = 1.5f, uint64_t seed = 4) {
  const DeviceGuard host(Device::cpu());
  return tensor_of(shape, numbers_for_test(shape.numel(), size, seed));
}

TEST_CASE("with a flag word of the caller nothing fails, and all numbers are legal") {
  Tensor bad = numbers({3, 40});
  bad.as<float>()[50] = std::numeric_limits<float>::quiet_NaN();
  const DeviceGuard guard(gpu());
  for (const QuantSpec& spec : every_spec()) {
    if (!find_quantizer(spec.scheme).learned(spec).empty()) continue;
    INFO(spec.scheme << ' ' << spec.dtype);
    const Tensor flag = Tensor::zeros({1}, dtypes::int32);
    QuantizeOptions options;
    options.flags = reinterpret_cast<uint32_t*>(flag.as<int32_t>());
    const Tensor codes = quantize_dynamic(spec, here(bad), options);
    poll_errors();
    CHECK(flag.item() == kFlagNonFinite);
    if (codes.quant()->scale)
      for (const double s : codes.quant()->scale->elements()) CHECK(std::isfinite(s));
  }
}

DType dtype_of_one_read = dtypes::int8;
bool one_read_is_tested = false;  // the scheme stays registered; tests of all schemes must not find it usable

TEST_CASE("a registered scheme that reads fp32 alone gets bf16 values widened, also where it codes in one read") {
  class InOneRead final : public Quantizer {
   public:
    std::string_view name() const override { return "in_one_read"; }
    void check(const QuantSpec&, bool) const override { require(one_read_is_tested, name(), "of another test"); }
    CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kInverse, -127, 127}; }
    bool on_device() const override { return true; }
    QuantParams fit(const QuantSpec&, const Tensor&) const override { return {}; }
    FitAndCode fit_and_code(const QuantSpec&) const override {
      return [](const QuantSpec& spec, const Tensor& x, const Tensor&, const Tensor&) {
        dtype_of_one_read = x.dtype();
        QuantParams params;
        params.scheme = spec.scheme;
        params.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 1));
        return params;
      };
    }
  };
  register_quantizer(std::make_unique<InOneRead>());
  QuantSpec spec;
  spec.scheme = "in_one_read";
  one_read_is_tested = true;
  const DeviceGuard guard(gpu());
  const Tensor x = here(numbers({4, 32}));
  for (const Var& values : {Var(x), cast(Var(x), dtypes::bf16)}) {
    dtype_of_one_read = dtypes::int8;
    const Tensor codes = quantize(values, spec).value();
    CHECK(dtype_of_one_read == dtypes::fp32);
    CHECK_FALSE(codes.row_sums().defined());
  }
  one_read_is_tested = false;
}

TEST_CASE("a scheme registered for the CPU alone is refused on a device") {
  class OnlyHost final : public Quantizer {
   public:
    std::string_view name() const override { return "only_host"; }
    void check(const QuantSpec&, bool) const override {}
    CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kInverse, -127, 127}; }
    QuantParams fit(const QuantSpec&, const Tensor&) const override { return {}; }
  };
  register_quantizer(std::make_unique<OnlyHost>());
  CHECK(find_quantizer("only_host").name() == "only_host");
  QuantSpec spec;
  spec.scheme = "only_host";
  const DeviceGuard guard(gpu());
  const Tensor x = here(numbers({2, 3}));
  CHECK(
      contains(error_of([&] { quantize_dynamic(spec, x); }), "[only_host] the scheme is registered for the CPU only"));
  CHECK(error_code_of([&] { quantize_dynamic(spec, x); }) == static_cast<int>(ErrorCode::kDevice));
}

}  // namespace
