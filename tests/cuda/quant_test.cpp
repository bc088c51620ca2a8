// Quantizers on a device: scales, codes, masks and gradients have the bits of the CPU, and data errors its meaning.
#include <cmath>

#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/quant/rounding.h"
#include "cuda/same_as_cpu.h"
#include "quant/reference.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

const std::vector<Granularity> kGranularities = {
    Granularity::tensor(),   Granularity::channel(0), Granularity::channel(1),  Granularity::token(),
    Granularity::groups(32), Granularity::groups(48), Granularity::groups(4, 0)};

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

Tensor part(const std::shared_ptr<const Tensor>& t) { return t ? *t : Tensor(); }

// Params, codes, mask, gradients.
Results run(const QuantSpec& spec, const Tensor& numbers) {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  const Tensor x = here(numbers);
  const QuantParams params = quantizer.fit(spec, x);
  Results out{part(params.scale), part(params.zero), part(params.offset), part(params.statistic)};
  const RandomStream draws{3, Purpose::kActivation, 5, 1};
  Tensor mask;
  QuantizeOptions options;
  options.sr = &draws;
  options.first_element = 11;
  options.mask = &mask;
  out.push_back(quantize_dynamic(spec, x, options));
  out.push_back(mask);
  if (x.cols() * x.rows() > 0) out.push_back(dequantize_tensor(out[4]));
  const Tensor g = here(host_numbers(x.shape(), 8)), gx = Tensor::empty(x.shape(), dtypes::fp32);
  std::vector<Tensor> sums;
  for (size_t i = 0; i < quantizer.learned(spec).size(); ++i)
    sums.push_back(here(host_numbers({params.scale->numel()}, 9 + i)));
  quantizer.leaf_backward(spec, params, x, g, gx, sums);
  out.push_back(gx);
  out.insert(out.end(), sums.begin(), sums.end());
  return out;
}

void compare(const QuantSpec& spec, const Tensor& x) {
  INFO(spec.scheme << ' ' << spec.dtype << " per " << spec.granularity << ' ' << x << " pow2 " << spec.pow2 << " div "
                   << spec.div << " rule " << (spec.ste ? ste_name(*spec.ste) : "default"));
  CHECK(device_difference([&] { return run(spec, x); }) == "");
}

TEST_CASE("every scheme and dtype, one granularity each") {
  size_t turn = 0;
  const Tensor x = numbers({5, 100});
  for (QuantSpec spec : every_spec()) {
    for (size_t tried = 0; tried < kGranularities.size(); ++tried) {
      spec.granularity = kGranularities[turn++ % kGranularities.size()];
      if (accepts(spec)) break;
    }
    compare(spec, x);
  }
}

TEST_CASE("granularities, shapes and options of one dtype a scheme") {
  std::string last;
  for (QuantSpec spec : every_spec()) {
    if (spec.scheme == last) continue;
    last = spec.scheme;
    for (const Granularity& g : kGranularities)
      for (const Shape& shape : {Shape{0, 4}, Shape{1, 1}, Shape{9, 70}}) {
        spec.granularity = g;
        if (!accepts(spec)) continue;
        for (const int option : {0, 1, 2, 3, 4}) {
          QuantSpec with = spec;
          with.pow2 = option == 1;
          with.div = option == 2;
          if (option == 3) with.rounding = Rounding::kStochastic;
          if (option == 4) with.scale_dtype = dtypes::fp16;
          if (accepts(with)) compare(with, numbers(shape, 1.5f, 7));
        }
      }
  }
}

TEST_CASE("straight-through rules, alpha and its gradient") {
  for (const SteRule rule : {SteRule::kIdentity, SteRule::kClip, SteRule::kApproxSign, SteRule::kTanh, SteRule::kNone})
    for (const bool alpha : {false, true})
      for (const bool alpha_grad : {false, true})
        for (const std::string scheme : {"binary", "standardized_binary", "symmetric", "dorefa_weight", "lsq_plus"}) {
          QuantSpec spec;
          spec.scheme = scheme;
          spec.dtype =
              scheme.ends_with("binary") ? dtypes::bint1 : (scheme == "symmetric" ? dtypes::int4 : dtypes::uint4);
          spec.granularity = Granularity::channel(0);
          spec.ste = rule;
          spec.ste_t = 1.75f;
          spec.alpha = alpha;
          spec.alpha_grad = alpha_grad;
          if (accepts(spec)) compare(spec, numbers({6, 130}, 2.0f, 12));
        }
}

TEST_CASE("sums of learned numbers over many pieces") {
  for (const char* scheme : {"lsq", "lsq_plus", "pact"})
    for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1)}) {
      QuantSpec spec;
      spec.scheme = scheme;
      spec.dtype = dtypes::uint4;
      spec.granularity = g;
      compare(spec, numbers({36, 4100}, 3.0f, 21));  // pieces of 15 rows, ragged
    }
}

TEST_CASE("straight_through by mask and by numbers") {
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  const Tensor x = numbers({4, 70}, 2.0f, 2);
  for (const SteRule rule : {SteRule::kClip, SteRule::kApproxSign, SteRule::kTanh, SteRule::kNone}) {
    spec.ste = rule;
    CHECK(device_difference([&] {
            Tensor mask;
            QuantizeOptions options;
            options.mask = &mask;
            quantize_dynamic(spec, here(x), options);
            return Results{straight_through(spec, here(host_numbers({4, 70}, 5)), mask, here(x))};
          }) == "");
  }
}

TEST_CASE("numbers without scales are errors on both, the device's when its flags are read") {
  Tensor bad = numbers({3, 40});
  bad.as<float>()[50] = kInf;
  for (const QuantSpec& spec : every_spec()) {
    if (find_quantizer(spec.scheme).constant_params(spec)) continue;
    INFO(spec.scheme << ' ' << spec.dtype);
    const TwoErrors e = errors_of([&] { find_quantizer(spec.scheme).fit(spec, here(bad)); });
    if (spec.scheme != "pact") CHECK(contains(e.on_cpu, "holds NaN or Inf: it has no scale"));
    CHECK(e.on_gpu == e.on_cpu);
  }
  QuantSpec fixed;
  fixed.scheme = "fixed";
  const TwoErrors codes = errors_of([&] { quantize_dynamic(fixed, here(bad)); });
  CHECK(contains(codes.on_cpu, "holds NaN or Inf: it has no codes of int8"));
  CHECK(codes.on_gpu == codes.on_cpu);
}

TEST_CASE("scales past fp32 are errors on both") {
  const Tensor large = tensor_of({2, 2}, {1, 2, -3e38f, 3e38f});
  for (const char* scheme : {"affine", "minmax_offset", "ternary", "lsq", "standardized_binary"}) {
    QuantSpec spec;
    spec.scheme = scheme;
    spec.granularity = Granularity::channel(0);
    if (spec.scheme == "ternary") spec.dtype = dtypes::ternary;
    if (spec.scheme == "standardized_binary") spec.dtype = dtypes::bint1;
    INFO(scheme);
    const TwoErrors e = errors_of([&] { find_quantizer(scheme).fit(spec, here(large)); });
    CHECK(contains(e.on_cpu, "are too large: the "));
    CHECK(contains(e.on_cpu, "of block 1 is "));
    CHECK(contains(e.on_gpu, "the values of x [2,2] fp32 are too large: the "));
    CHECK(contains(e.on_gpu, "not finite in fp32"));
  }
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
