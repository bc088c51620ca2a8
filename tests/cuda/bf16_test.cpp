// Kernels that take fp32 or bf16, on emulated devices: the bits of the CPU, whose bf16 has those of the widened values
// (tests/kernels/bf16_test.cpp); and no op that reads bf16 values copies them as fp32.
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/observer.h"
#include "both.h"
#include "same_as_cpu.h"
#include "support/inner_edges.h"
#include "support/narrow_arrays.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

constexpr int kRules = static_cast<int>(ReduceRule::kCountAbsAbove) + 1;
const std::vector<std::pair<int64_t, int64_t>> kMatrices{{0, 3},    {1, 1},   {5, 31},   {33, 32},  {64, 65},
                                                         {1025, 3}, {7, 128}, {3, 1030}, {2100, 40}};

// An array of the current device in bf16, or of its widened values.
class PlacedFloats {
 public:
  PlacedFloats(int64_t n, uint32_t seed, bool bf16, int64_t shift, bool nonfinite = false)
      : bf16_(bf16),
        narrow_(bf16 ? narrow_values(n, seed, nonfinite) : std::vector<uint16_t>(), shift),
        wide_(bf16 ? std::vector<float>() : widened_values(narrow_values(n, seed, nonfinite)), shift) {}
  FloatsIn in() const { return bf16_ ? FloatsIn(narrow_.data(), dtypes::bf16) : FloatsIn(wide_.data()); }
  FloatsOut out() const { return bf16_ ? FloatsOut(narrow_.data(), dtypes::bf16) : FloatsOut(wide_.data()); }
  void add_to(Outcome& to) const {
    if (!bf16_) return to.add(wide_);
    for (const float v : widened_values(narrow_.values())) to.floats.push_back(v);
  }

 private:
  bool bf16_;
  Placed<uint16_t> narrow_;
  Placed<float> wide_;
};

struct Extent {
  int64_t rows, cols, group, pad;  // ldx = cols + pad
};
const std::vector<Extent> kExtents{{1, 1, 1, 0},       {3, 17, 5, 2},   {5, 1025, 100, 0},   {40, 33, 32, 3},
                                   {2, 2500, 1100, 1}, {1030, 3, 2, 0}, {2, 33000, 40000, 0}};

ReduceArgs args_of(const Extent& e, const PlacedFloats& x, ReduceAxis axis) {
  ReduceArgs args;
  args.axis = axis;
  args.rows = e.rows;
  args.cols = e.cols;
  args.group = e.group;
  args.ldx = e.cols + e.pad;
  args.x = x.in();
  return args;
}

// A matrix whose rows have gaps of e.pad elements between them.
PlacedFloats matrix_of(const Extent& e, int64_t shift, bool nonfinite) {
  return PlacedFloats(e.rows * (e.cols + e.pad), 1, true, shift, nonfinite);
}

}  // namespace

TEST_CASE("Reductions of bf16 on the device, for every rule and axis") {
  for (const Extent& e : kExtents)
    for (const ReduceAxis axis : {ReduceAxis::kAll, ReduceAxis::kRows, ReduceAxis::kColumns, ReduceAxis::kGroups})
      for (const bool nonfinite : {false, true}) {
        CAPTURE(e.rows, e.cols, static_cast<int>(axis), nonfinite);
        CHECK(differing_on_device([&](Outcome& out) {
                for (int rule = 0; rule < kRules; ++rule) {
                  const PlacedFloats x = matrix_of(e, rule % 3, nonfinite);
                  ReduceArgs args = args_of(e, x, axis);
                  const int64_t outputs = reduce_outputs(args);
                  const Placed<float> center(widened_values(narrow_values(outputs, 2))),
                      result(std::vector<float>(static_cast<size_t>(outputs) + 1, -9.0f));
                  const Placed<uint32_t> flags(std::vector<uint32_t>{8});
                  args.rule = static_cast<ReduceRule>(rule);
                  args.center = args.rule >= ReduceRule::kSumSquaredDiff ? center.data() : nullptr;
                  args.out = result.data();
                  args.flags = flags.data();
                  reduce(args);
                  out.add(result);
                  out.add(flags);
                }
              }) == 0);
      }
}

TEST_CASE("Ranges of bf16 on the device") {
  for (const Extent& e : kExtents)
    for (const ReduceAxis axis : {ReduceAxis::kRows, ReduceAxis::kGroups})
      for (const bool nonfinite : {false, true}) {
        CAPTURE(e.rows, e.cols, static_cast<int>(axis), nonfinite);
        CHECK(differing_on_device([&](Outcome& out) {
                const PlacedFloats x = matrix_of(e, 1, nonfinite);
                ReduceArgs args = args_of(e, x, axis);
                const std::vector<float> empty(static_cast<size_t>(reduce_outputs(args)) + 1, -9.0f);
                const Placed<float> low(empty), high(empty);
                const Placed<uint32_t> flags(std::vector<uint32_t>{0});
                args.out = low.data();
                args.flags = flags.data();
                reduce_ranges(args, high.data());
                out.add(low);
                out.add(high);
                out.add(flags);
              }) == 0);
      }
}

TEST_CASE("Sums and results of a normalisation on the device, each array in fp32 or bf16, aligned or not") {
  for (const auto& [rows, cols] : kMatrices)
    for (const int64_t step : {0, 1})
      for (int form = 0; form < 8; ++form)
        for (const int64_t shift : {0, 1, 2}) {
          const int64_t r = rows, c = cols, n = r * c, params = step == 0 ? 1 : c;
          const bool bf16_x = (form & 1) != 0, bf16_gy = (form & 2) != 0, bf16_gx = (form & 4) != 0;
          CAPTURE(r, c, step, form, shift);
          CHECK(differing_on_device([&](Outcome& out) {
                  const auto column = [&](uint32_t seed) {
                    return Placed<float>(widened_values(narrow_values(params, seed)));
                  };
                  const Placed<float> mean = column(3), inv = column(4), gamma = column(5), beta = column(6),
                                      mg = column(7), mgx = column(8), sum = column(9), product = column(10);
                  const PlacedFloats x(n, 1, bf16_x, shift, true), gy(n, 2, bf16_gy, shift),
                      y(n + 1, 11, bf16_x, shift), gx(n + 1, 12, bf16_gx, shift);
                  norm_sums({r, c, gy.in(), x.in(), mean.data(), inv.data(), step, sum.data(), product.data()});
                  normalize({r, c, x.in(), mean.data(), inv.data(), gamma.data(), beta.data(), step, y.out()});
                  normalize_backward({r, c, x.in(), gy.in(), mean.data(), inv.data(), gamma.data(), mg.data(),
                                      mgx.data(), step, gx.out()});
                  out.add(sum);
                  out.add(product);
                  y.add_to(out);
                  gx.add_to(out);
                }) == 0);
        }
}

namespace {

struct NormForm {
  bool columns, training;
};
Var norm_of(const NormForm& form, const Var& x, const std::vector<Var>& p) {
  NormOptions options;
  options.training = form.training;
  const Shape shape = p[0].shape();
  options.running_mean = Tensor::zeros(shape, dtypes::fp32);
  options.running_var = Tensor::full(shape, dtypes::fp32, 1.5);
  return form.columns ? batch_norm(x, p[0], p[1], options) : tensor_norm(x, p[0], p[1], options);
}

}  // namespace

TEST_CASE("A norm of bf16 values has the bits of the CPU on the device, and copies nothing as fp32 on either") {
  const Shape shape{256, 130};
  const int64_t fp32_copy = shape.numel() * 4;
  for (const NormForm form : {NormForm{true, true}, {true, false}, {false, true}, {false, false}}) {
    CAPTURE(form.columns, form.training);
    const Shape params{form.columns ? shape[1] : 1};
    CHECK(device_difference([&]() -> Results {
            const Tensor x = here(host_numbers(shape, 1, 2.0, dtypes::bf16)),
                         gy = here(host_numbers(shape, 2, 1.0, dtypes::bf16));
            const InnerRun run =
                run_inner([&](const Var& v, const std::vector<Var>& p) { return norm_of(form, v, p); }, x, dtypes::bf16,
                          {here(host_numbers(params, 3)), here(host_numbers(params, 4))}, gy);
            CHECK(run.y.dtype() == dtypes::bf16);
            CHECK(run.gx.dtype() == dtypes::bf16);
            // y, or gx: half of an fp32 copy each, and the parts of sums.
            for (const MemoryUse& use : {run.forward, run.backward}) {
              CHECK(use.workspace <= fp32_copy / 8);
              CHECK(use.more <= fp32_copy / 2 + fp32_copy / 8);
            }
            return {run.y, run.gx, run.gradients[0], run.gradients[1]};
          }) == "");
  }
}

namespace {

// x and its gradient in bf16, gy in `gy_dtype`; y takes at most `kept` bytes.
void check_inner(const std::function<Var(const Var&)>& op, DType gy_dtype, int64_t kept,
                 const Shape& shape = {256, 136}) {
  const int64_t fp32_copy = shape.numel() * 4;
  CHECK(device_difference([&]() -> Results {
          const Tensor x = here(host_numbers(shape, 1, 2.0, dtypes::bf16)),
                       gy = here(host_numbers(shape, 2, 1.0, gy_dtype));
          const InnerRun run =
              run_inner([&](const Var& v, const std::vector<Var>&) { return op(v); }, x, dtypes::bf16, {}, gy);
          CHECK(run.gx.dtype() == dtypes::bf16);
          INFO("workspace " << run.forward.workspace << " and " << run.backward.workspace << ", more "
                            << run.forward.more << " and " << run.backward.more);
          CHECK(run.forward.workspace <= fp32_copy / 8);
          CHECK(run.backward.workspace <= fp32_copy / 8);
          CHECK(run.forward.more <= kept + fp32_copy / 8);
          CHECK(run.backward.more <= fp32_copy / 2 + fp32_copy / 8);
          return {run.y, run.gx};
        }) == "");
}

QuantSpec scheme(const char* name, DType dtype, const Granularity& granularity, bool alpha = false) {
  QuantSpec spec;
  spec.scheme = name;
  spec.dtype = dtype;
  spec.granularity = granularity;
  spec.alpha = alpha;
  return spec;
}

}  // namespace

TEST_CASE("Dropout of bf16 values has the bits of the CPU on the device, and copies nothing as fp32 on either") {
  check_inner(
      [](const Var& x) {
        DropoutOptions options;
        options.p = 0.3;
        options.stream = {3, Purpose::kDropout, 1, 0};
        return dropout(x, options);
      },
      dtypes::bf16, 256 * 136 * 2 + 256 * 24);
}

TEST_CASE("Rotary positions of bf16 values have the bits of the CPU on the device, without a copy as fp32 on either") {
  RopeOptions options;
  options.dim = 16;
  const Shape shape{8, 32, 128};
  check_inner([&](const Var& x) { return rope(x, rope_table(40, options), options, 3, 5); }, dtypes::bf16,
              shape.numel() * 2, shape);
}

TEST_CASE("Quantizers of bf16 values have the codes of the CPU on the device, and copy nothing as fp32 on either") {
  for (const QuantSpec& spec :
       {scheme("binary", dtypes::bint1, Granularity::tensor()), scheme("absmax", dtypes::int8, Granularity::token()),
        scheme("affine", dtypes::uint8, Granularity::tensor()),
        scheme("symmetric", dtypes::int4, Granularity::channel(1)),
        scheme("symmetric", dtypes::int8, Granularity::groups(32)),
        scheme("ternary", dtypes::ternary, Granularity::tensor())})
    for (const bool transposed : {false, true}) {
      CAPTURE(spec.scheme, spec.dtype.name(), transposed);
      QuantizeOpOptions options;
      options.transposed = transposed;
      check_inner([&](const Var& x) { return quantize(x, spec, options); }, dtypes::fp32,
                  256 * 136 * (transposed ? 2 : 1));
    }
  // With scales from the kernel that makes the codes.
  const QuantSpec scaled = scheme("binary", dtypes::bint1, Granularity::token(), true);
  CHECK(device_difference([&]() -> Results {
          const Tensor x = here(host_numbers({64, 1100}, 3, 2.0, dtypes::bf16));
          Tensor y;
          const MemoryUse use = memory_use([&] { y = quantize(Var(x), scaled).value(); });
          CHECK(use.workspace <= x.numel() * 4 / 8);
          return {y};
        }) == "");
}

TEST_CASE("Observers of bf16 values have the ranges of the CPU on the device, and copy nothing as fp32 on either") {
  const QuantSpec spec = scheme("affine", dtypes::uint8, Granularity::tensor());
  for (const std::string_view name : observer_names()) {
    CAPTURE(name);
    ObserverSpec kind;
    kind.name = name;
    CHECK(device_difference([&]() -> Results {
            const Tensor x = here(host_numbers({256, 512}, 4, 3.0, dtypes::bf16));
            const auto observer = make_observer(kind, spec, 512);
            const MemoryUse use = memory_use([&] { observer->observe(x); });
            CHECK(use.workspace <= x.numel() * 4 / 8);
            const QuantParams params = observer->params(spec);
            return {*params.scale, *params.zero};
          }) == "");
  }
}

}  // namespace bitgrad::test
