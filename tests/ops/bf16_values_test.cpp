// What ops do with bf16 values between layers: read widened, written with one rounding.
#include "bitgrad/base/cpu.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/quant/scheme.h"
#include "ops/norm.h"
#include "ops/product/operand.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/inner_edges.h"
#include "support/numbers.h"
#include "support/strict_bits.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// By the definition: to nearest, ties to even.
std::vector<uint32_t> rounded_bits(const Tensor& x) {
  std::vector<uint32_t> out;
  for (const double v : x.elements())
    out.push_back(std::bit_cast<uint32_t>(bf16_to_float(bf16_from_float(static_cast<float>(v)))));
  return out;
}

// Output and the gradients of all inputs, each in the dtype of its edge.
struct Run {
  Tensor y;
  std::vector<Tensor> gradients;
};
template <typename F>
Run run_op(F&& f, const std::vector<Tensor>& inputs, DType x_edge, const Tensor& gy) {
  Tape tape;
  std::vector<AccumulateSink> sinks(inputs.size());
  std::vector<Var> leaves;
  for (size_t i = 0; i < inputs.size(); ++i)
    leaves.push_back(tape.leaf(inputs[i], &sinks[i], i == 0 ? x_edge : dtypes::fp32));
  const Var y = f(leaves);
  Run run{y.value(), {}};
  tape.backward({y}, {gy});
  for (const AccumulateSink& sink : sinks) run.gradients.push_back(sink.filled() ? sink.grad() : Tensor());
  return run;
}

}  // namespace

TEST_CASE("cast rounds to nearest even or widens exactly, and passes the gradient") {
  for (const Shape& shape : {Shape{0, 3}, Shape{1}, Shape{7, 33}, Shape{3, 5, 65}}) {
    const Tensor x = random_tensor(shape, dtypes::fp32, 1, -3, 3), gy = random_tensor(shape, dtypes::fp32, 2);
    const Tensor narrow = cast(x, dtypes::bf16).value();
    CHECK(narrow.dtype() == dtypes::bf16);
    CHECK(bits_of(narrow) == rounded_bits(x));
    CHECK(bits_of(cast(narrow, dtypes::fp32).value()) == bits_of(narrow));
    CHECK(cast(x, dtypes::fp32).value().data() == x.data());
    const auto down = [](const std::vector<Var>& v) { return cast(v[0], dtypes::bf16); };
    CHECK(bits_of(run_op(down, {x}, dtypes::fp32, gy).gradients[0]) == bits_of(gy));
    CHECK(bits_of(run_op(down, {x}, dtypes::bf16, gy).gradients[0]) == rounded_bits(gy));
    const auto up = [](const std::vector<Var>& v) { return cast(v[0], dtypes::fp32); };
    CHECK(bits_of(run_op(up, {narrow}, dtypes::fp32, gy).gradients[0]) == bits_of(gy));
  }
  const Tensor tie = Tensor::from({1.00390625f, 1.01171875f, -0.0f}, {3});
  CHECK(cast(tie, dtypes::bf16).value().elements() == std::vector<double>{1.0, 1.015625, 0.0});
  CHECK(error_of([&] { cast(tie, dtypes::int8); }) == "[cast] dtype of the result: got int8, expected fp32 or bf16");
  CHECK(error_of([] { cast(Tensor::zeros({2}, dtypes::int32), dtypes::bf16); }) ==
        "[cast] x: got [2] int32, expected fp32 or bf16");
}

TEST_CASE("quantizers give bf16 values the codes, scales and gradients of the widened ones, for every scheme") {
  for (const QuantSpec& base : all_specs())
    for (const SteRule rule : {SteRule::kClip, SteRule::kIdentity, SteRule::kApproxSign})
      for (const Shape& shape : {Shape{1, 1}, Shape{3, 67}, Shape{17, 128}}) {
        QuantSpec spec = base;
        spec.ste = rule;
        INFO(spec.scheme << ' ' << spec.dtype << ' ' << enum_name(rule) << ' ' << shape);
        const Tensor x = random_tensor(shape, dtypes::bf16, 4, -2, 2), wide = cast(x, dtypes::fp32).value();
        const Tensor gy = random_tensor(shape, dtypes::fp32, 5);
        const auto op = [&](const std::vector<Var>& v) { return quantize(v[0], spec); };
        const Run narrow = run_op(op, {x}, dtypes::fp32, gy), full = run_op(op, {wide}, dtypes::fp32, gy);
        CHECK(narrow.y.dtype() == spec.dtype);
        CHECK(narrow.y.elements() == full.y.elements());
        CHECK(narrow.y.values() == full.y.values());
        REQUIRE(narrow.gradients[0].defined() == full.gradients[0].defined());
        if (full.gradients[0].defined()) CHECK(bits_of(narrow.gradients[0]) == bits_of(full.gradients[0]));
      }
}

// [cpu]: minutes on the emulated device
TEST_CASE("a product written in bf16 is the fp32 one rounded once, for every dtype of weights and scales", "[cpu]") {
  const StrictBits strict;
  uint64_t seed = 60;
  std::vector<DType> weights = code_dtypes();
  weights.push_back(dtypes::fp32);
  for (const DType dx : {dtypes::fp32, dtypes::bf16, dtypes::int8, dtypes::bint1})
    for (const DType dw : weights)
      for (const auto& [rows, cols, outputs] : {std::array<int64_t, 3>{1, 5, 3}, std::array<int64_t, 3>{9, 130, 257}})
        for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::groups(32)}) {
          const auto made = [&, cols = cols](int64_t count, DType d, const Granularity& scales) {
            return d.is_code() ? random_codes({count, cols}, d, ++seed, scales)
                               : random_tensor({count, cols}, d, ++seed);
          };
          const Tensor x = made(rows, dx, Granularity::token()), w = made(outputs, dw, g);
          const Var bias = seed % 3 == 0 ? Var() : Var(random_tensor({outputs}, dtypes::fp32, ++seed));
          INFO(x.describe() << "; " << w.describe());
          ProductModes narrow;
          narrow.y = dtypes::bf16;
          const Tensor y = linear(x, w, bias, narrow).value();
          CHECK(y.dtype() == dtypes::bf16);
          CHECK(bits_of(y) == rounded_bits(linear(x, w, bias).value()));
          CHECK(bits_of(linear_simulated(x, w, bias, dtypes::bf16).value()) ==
                rounded_bits(linear_simulated(x, w, bias).value()));
        }
}

TEST_CASE("the layout that a bf16 product is planned for is the one that it reads") {
  uint64_t turn = 0;
  for (const DType dx : {dtypes::bf16, dtypes::int8, dtypes::bint1})
    for (const DType dw : {dtypes::bint1, dtypes::int4, dtypes::int8, dtypes::fp32})
      for (const int64_t rows : {1, 24, 200}) {
        const auto made = [&](const Shape& shape, DType d) {
          return d.is_code() ? random_codes(shape, d, ++turn) : random_tensor(shape, d, ++turn);
        };
        const Tensor x = made({rows, 96}, dx), w = made({48, 96}, dw);
        ProductForm form;
        form.x = form_of(x);
        form.w = form_of(w);
        form.y = dtypes::bf16;
        const GemmArgs args =
            detail::product_args(detail::side_of(x, false), detail::side_of(w, false), dtypes::bf16, nullptr);
        CHECK(plan_product(form).w_layout == plan_gemm(args).b_layout);
      }
}

namespace {

using InnerOp = std::function<Var(const Var&, const std::vector<Var>&)>;

// Nothing as large as the values in fp32 is in workspace memory, and nothing but the result is elsewhere.
void check_memory(const InnerOp& op, const Tensor& x, const std::vector<Tensor>& parameters, DType gy_dtype,
                  int64_t kept) {
  const int64_t fp32_copy = x.numel() * 4;
  const InnerRun run = run_inner(op, x, dtypes::bf16, parameters, random_tensor(x.shape(), gy_dtype, 78));
  INFO("workspace " << run.forward.workspace << " and " << run.backward.workspace << ", more " << run.forward.more
                    << " and " << run.backward.more);
  CHECK(run.forward.workspace <= fp32_copy / 8);
  CHECK(run.backward.workspace <= fp32_copy / 8);
  CHECK(run.forward.more <= kept + fp32_copy / 8);
  CHECK(run.backward.more <= fp32_copy / 2 + fp32_copy / 8);
}

InnerOp norm_op(bool columns, bool training) {
  return [=](const Var& x, const std::vector<Var>& p) {
    NormOptions options;
    options.training = training;
    options.running_mean = Tensor::full(p[0].shape(), dtypes::fp32, 0.125);
    options.running_var = Tensor::full(p[0].shape(), dtypes::fp32, 1.5);
    return columns ? batch_norm(x, p[0], p[1], options) : tensor_norm(x, p[0], p[1], options);
  };
}

}  // namespace

TEST_CASE("norms, dropout and rotary positions of bf16 values copy nothing as fp32") {
  for (const bool columns : {true, false})
    for (const bool training : {true, false}) {
      INFO(columns << training);
      const Tensor x = random_tensor({512, 130}, dtypes::bf16, 7);
      const Shape params{columns ? x.cols() : 1};
      check_memory(norm_op(columns, training), x,
                   {random_tensor(params, dtypes::fp32, 5), random_tensor(params, dtypes::fp32, 6)}, dtypes::bf16,
                   x.numel() * 2);
    }
  const InnerOp drop = [](const Var& x, const std::vector<Var>&) {
    DropoutOptions options;
    options.p = 0.3;
    options.stream = {3, Purpose::kDropout, 1, 0};
    return dropout(x, options);
  };
  const Tensor x = random_tensor({512, 130}, dtypes::bf16, 7);
  check_memory(drop, x, {}, dtypes::bf16, x.numel() * 2 + x.numel() / 4);
  for (const bool interleaved : {false, true})
    for (const int64_t turned : {-1, 1}) {
      RopeOptions options;
      options.dim = 6;
      options.interleaved = interleaved;
      const Tensor table = rope_table(80, options);
      const InnerOp op = [&](const Var& v, const std::vector<Var>&) { return rope(v, table, options, 3, turned); };
      const Tensor positions = random_tensor({16, 64, 66}, dtypes::bf16, 7);
      check_memory(op, positions, {}, dtypes::bf16, positions.numel() * 2);
    }
}

TEST_CASE("quantizers of bf16 values copy nothing as fp32, nor do the observers of their ranges") {
  const Tensor x = random_tensor({512, 130}, dtypes::bf16, 7);
  for (const QuantSpec& base : all_specs()) {
    INFO(base.scheme << ' ' << base.dtype);
    const MemoryUse forward = memory_use([&] { quantize(Var(x), base); });
    CHECK(forward.workspace <= x.numel() * 4 / 8);
    if (find_quantizer(base.scheme).own_backward(base) || ste_rule(base) != SteRule::kClip || base.alpha) continue;
    const InnerOp op = [&](const Var& v, const std::vector<Var>&) { return quantize(v, base); };
    check_memory(op, x, {}, dtypes::fp32, x.numel() + x.numel() / 4);
  }
  for (const std::string_view name : observer_names()) {
    INFO(name);
    QuantSpec spec;
    spec.scheme = "affine";
    spec.dtype = dtypes::uint8;
    ObserverSpec kind;
    kind.name = name;
    const auto narrow = make_observer(kind, spec, 130), full = make_observer(kind, spec, 130);
    const MemoryUse use = memory_use([&] { narrow->observe(x); });
    CHECK(use.workspace <= x.numel() * 4 / 8);
    full->observe(cast(x, dtypes::fp32).value());
    const QuantParams a = narrow->params(spec), b = full->params(spec);
    CHECK(a.scale->elements() == b.scale->elements());
    CHECK(a.zero->elements() == b.zero->elements());
  }
}

TEST_CASE("ops refuse results of dtypes that no edge has") {
  const Tensor x = random_tensor({2, 3}, dtypes::fp32, 1), codes = random_codes({2, 3}, dtypes::int8, 2);
  ProductModes modes;
  modes.y = dtypes::fp16;
  CHECK(error_of([&] { linear(x, x, {}, modes); }) == "[linear] dtype of the result: got fp16, expected fp32 or bf16");
  CHECK(error_of([&] { dequantize(codes, dtypes::int32); }) ==
        "[dequantize] dtype of the result: got int32, expected fp32 or bf16");
  CHECK(error_of([&] {
          embedding(Tensor::zeros({1, 1}, dtypes::int32), x, true, dtypes::fp64);
        }) == "[embedding] dtype of the result: got fp64, expected fp32 or bf16");
  const Tensor narrow = cast(x, dtypes::bf16).value(), ones = Tensor::full({3}, dtypes::bf16, 1);
  CHECK(contains(error_of([&] { batch_norm(narrow, ones, ones, {}); }), "gamma must be [3] fp32, got [3] bf16"));
  const Tensor wide_ones = Tensor::full({3}, dtypes::fp32, 1), in[] = {narrow, wide_ones, wide_ones};
  CHECK(error_of([&] { norm_signs("batch_norm", true, in, {}, nullptr, nullptr); }) ==
        "[batch_norm] x: got [2,3] bf16, expected fp32 for the signs of its norm");
}
