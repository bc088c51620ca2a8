// What ops do with bf16 values between layers: read widened, written with one rounding.
#include "bitgrad/base/bits_mode.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/observer.h"
#include "bitgrad/quant/rounding.h"
#include "ops/norm.h"
#include "ops/product/operand.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/inner_edges.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

class StrictOps {
 public:
  StrictOps() : outer_(bits_mode()) { set_bits_mode(BitsMode::kStrict); }
  ~StrictOps() { set_bits_mode(outer_); }

 private:
  BitsMode outer_;
};

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
        INFO(spec.scheme << ' ' << spec.dtype << ' ' << ste_name(rule) << ' ' << shape);
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
  const StrictOps strict;
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

// op on bf16 values against itself on the widened ones, between other ops: y, gx and the gradients of the parameters,
// for edges of every dtype; alone or as one of two readers of x, whose gradients are summed in fp32.
void check_between(const InnerOp& op, const Tensor& x, const std::vector<Tensor>& parameters) {
  const Tensor wide_x = cast(x, dtypes::fp32).value();
  const DType narrow_y = run_inner(op, x, dtypes::fp32, parameters, {}).y.dtype();
  const InnerOp two = [&](const Var& v, const std::vector<Var>& p) { return add(op(v, p), op(v, p)); };
  for (const DType gy_dtype : {dtypes::fp32, dtypes::bf16})
    for (const DType gx_dtype : {dtypes::fp32, dtypes::bf16})
      for (const bool twice : {false, true}) {
        if (twice && narrow_y.is_code()) continue;
        INFO("gy " << gy_dtype << ", gx " << gx_dtype << ", twice " << twice);
        const Tensor gy = random_tensor(x.shape(), gy_dtype, 77);
        const InnerOp& run = twice ? two : op;
        const InnerRun narrow = run_inner(run, x, gx_dtype, parameters, gy);
        const InnerRun full = run_inner(run, wide_x, dtypes::fp32, parameters, gy);
        if (!twice && narrow.y.dtype() == dtypes::bf16) CHECK(bits_of(narrow.y) == rounded_bits(full.y));
        if (narrow.y.dtype().is_code()) CHECK(narrow.y.elements() == full.y.elements());
        REQUIRE(narrow.gx.dtype() == gx_dtype);
        CHECK(bits_of(narrow.gx) == (gx_dtype == dtypes::bf16 ? rounded_bits(full.gx) : bits_of(full.gx)));
        for (size_t i = 0; i < parameters.size(); ++i)
          CHECK(bits_of(narrow.gradients[i]) == bits_of(full.gradients[i]));
      }
}

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

TEST_CASE("a norm of bf16 values between other ops has the bits of fp32, rounded once, and copies nothing as fp32") {
  for (const bool columns : {true, false})
    for (const bool training : {true, false}) {
      const InnerOp op = norm_op(columns, training);
      for (const Shape& shape : {Shape{1, 1}, Shape{7, 33}, Shape{3, 5, 65}, Shape{1030, 16}, Shape{33, 257}}) {
        INFO(columns << training << shape);
        const Shape params{columns ? shape.cols() : 1};
        const std::vector<Tensor> parameters{random_tensor(params, dtypes::fp32, 5),
                                             random_tensor(params, dtypes::fp32, 6)};
        check_between(op, random_tensor(shape, dtypes::bf16, 4, -2, 2), parameters);
      }
      const Tensor x = random_tensor({512, 130}, dtypes::bf16, 7);
      const Shape params{columns ? x.cols() : 1};
      check_memory(op, x, {random_tensor(params, dtypes::fp32, 5), random_tensor(params, dtypes::fp32, 6)},
                   dtypes::bf16, x.numel() * 2);
    }
}

TEST_CASE("dropout of bf16 values between other ops has the bits of fp32, rounded once, and copies nothing as fp32") {
  const InnerOp op = [](const Var& x, const std::vector<Var>&) {
    DropoutOptions options;
    options.p = 0.3;
    options.stream = {3, Purpose::kDropout, 1, 0};
    return dropout(x, options);
  };
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 33}, Shape{3, 5, 65}, Shape{2, 1030}})
    check_between(op, random_tensor(shape, dtypes::bf16, 4, -2, 2), {});
  const Tensor x = random_tensor({512, 130}, dtypes::bf16, 7);
  check_memory(op, x, {}, dtypes::bf16, x.numel() * 2 + x.numel() / 4);
}

TEST_CASE("rotary positions of bf16 values have the bits of fp32, rounded once, and copy nothing as fp32") {
  for (const bool interleaved : {false, true})
    for (const int64_t turned : {-1, 1}) {
      RopeOptions options;
      options.dim = 6;
      options.interleaved = interleaved;
      const Tensor table = rope_table(80, options);
      const InnerOp op = [&](const Var& x, const std::vector<Var>&) { return rope(x, table, options, 3, turned); };
      check_between(op, random_tensor({2, 7, 18}, dtypes::bf16, 4, -2, 2), {});
      const Tensor x = random_tensor({16, 64, 66}, dtypes::bf16, 7);
      check_memory(op, x, {}, dtypes::bf16, x.numel() * 2);
    }
}

TEST_CASE("quantizers of bf16 values between other ops have the codes and gradients of fp32, for every scheme") {
  std::vector<QuantSpec> specs = all_specs();
  for (QuantSpec spec : special_specs()) {
    spec.granularity = spec.scheme == "standardized_binary" ? Granularity::token() : Granularity::tensor();
    specs.push_back(spec);
  }
  for (const QuantSpec& base : specs) {
    INFO(base.scheme << ' ' << base.dtype);
    const size_t learned = find_quantizer(base.scheme).learned(base).size();
    const InnerOp op = [&](const Var& x, const std::vector<Var>& p) {
      return learned > 0 ? quantize_learned(x, base, p) : quantize(x, base);
    };
    const std::vector<Tensor> parts(learned, Tensor::full({1}, dtypes::fp32, 0.25));
    for (const Shape& shape : {Shape{3, 67}, Shape{17, 128}})
      check_between(op, random_tensor(shape, dtypes::bf16, 4, -2, 2), parts);
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
        "[batch_norm] x: got [2,3] bf16, expected fp32 to take the signs of its norm");
}
