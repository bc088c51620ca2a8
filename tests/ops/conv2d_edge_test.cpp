// What lies around the products of a convolution: gradients that arrive in bf16, sums over microbatches, operands that
// want no gradient, and memory.
#include <limits>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "ops/conv_support.h"
#include "support/catch.h"
#include "support/needs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

ConvCase edge_case(DType dx, DType dw, const ConvGeometry& g, uint64_t seed) {
  ConvCase c;
  c.g = g;
  c.x = dx.is_code() ? random_codes(g.x_shape(), dx, seed) : random_tensor(g.x_shape(), dx, seed);
  c.w = dw.is_code() ? random_codes(g.w_shape(), dw, seed + 1, Granularity::channel(0))
                     : random_tensor(g.w_shape(), dw, seed + 1);
  c.gy = random_tensor(g.y_shape(), dtypes::fp32, seed + 2, -2, 2);
  c.bias = random_tensor({g.o}, dtypes::fp32, seed + 3);
  return c;
}

const ConvGeometry kStrided{3, 9, 8, 20, 17, {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0, 1, 1}}};
const std::pair<DType, DType> kEdgePairs[] = {{dtypes::bint1, dtypes::bint1},
                                              {dtypes::int8, dtypes::int4},
                                              {dtypes::fp32, dtypes::bint1},
                                              {dtypes::fp32, dtypes::fp32},
                                              {dtypes::bf16, dtypes::int8}};

}  // namespace

TEST_CASE("a bf16 edge behind a convolution carries rounded gradients, which are used as their values in every mode") {
  const StrictBits strict;
  for (const auto& [dx, dw] : kEdgePairs)
    for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8}) {
      ConvCase c = edge_case(dx, dw, kStrided, 81);
      if (mode != ProductMode::kInt8 || dw.is_code()) c.modes.gx = mode;
      if (mode != ProductMode::kInt8 || dx.is_code()) c.modes.gw = mode;
      const Tensor narrow = Tensor::from_elements(c.gy.shape(), dtypes::bf16, c.gy.elements());
      c.gy = Tensor::from_elements(c.gy.shape(), dtypes::fp32, narrow.elements());
      const LinearRun wide = run_conv(c);
      AccumulateSink sx, sw, sb;
      Tape tape;
      Var y = conv2d(tape.leaf(c.x, &sx, dtypes::fp32), tape.leaf(c.w, &sw, dtypes::fp32),
                     tape.leaf(c.bias, &sb, dtypes::fp32), c.g.options, c.modes);
      y.want_grad(dtypes::bf16);
      tape.backward({y}, {narrow});
      INFO(describe(c));
      CHECK((bits_of(sx.grad()) == bits_of(wide.gx)));
      CHECK((bits_of(sw.grad()) == bits_of(wide.gw)));
      CHECK((bits_of(sb.grad()) == bits_of(wide.gb)));
    }
}

TEST_CASE("gradients of convolutions over microbatches: grad = round(float(grad) + g), drawn where asked for") {
  const StrictBits strict;
  const RandomStream draws{5, Purpose::kGradAccumulate, 7, 3};
  for (const auto& [dx, dw] : kEdgePairs)
    for (const DType grad : {dtypes::fp32, dtypes::bf16})
      for (const bool drawn : {false, true}) {
        if (drawn && grad == dtypes::fp32) continue;
        AccumulateSink sx, sw;
        sx.set_rounding(drawn ? &draws : nullptr);
        sw.set_rounding(drawn ? &draws : nullptr);
        std::vector<float> ex, ew;
        const auto add = [&](std::vector<float>& sum, const Tensor& g) {
          const bool first = sum.empty();
          sum.resize(static_cast<size_t>(g.numel()));
          for (size_t i = 0; i < sum.size(); ++i) {
            const float total = first ? g.as<float>()[i] : sum[i] + g.as<float>()[i];
            if (grad == dtypes::fp32)
              sum[i] = total;
            else
              sum[i] =
                  bf16_to_float(drawn ? bf16_from_float_stochastic(total, draws.bits16(i)) : bf16_from_float(total));
          }
        };
        for (uint64_t microbatch = 0; microbatch < 3; ++microbatch) {
          ConvCase c = edge_case(dx, dw, kStrided, 91 + 10 * microbatch);
          if (microbatch == 1 && integer_kind(dw)) c.modes.gx = ProductMode::kInt8;
          if (microbatch == 1 && integer_kind(dx)) c.modes.gw = ProductMode::kInt8;
          Tape tape;
          const Var y = conv2d(tape.leaf(c.x, &sx, grad), tape.leaf(c.w, &sw, grad), Var(), c.g.options, c.modes);
          tape.backward({y}, {c.gy});
          const LinearRun run = run_conv(c);
          add(ex, run.gx);
          add(ew, run.gw);
        }
        INFO(dx << " x " << dw << ", gradients " << grad << (drawn ? ", drawn" : ""));
        CHECK((sx.grad().elements() == std::vector<double>(ex.begin(), ex.end())));
        CHECK((sw.grad().elements() == std::vector<double>(ew.begin(), ew.end())));
      }
}

TEST_CASE("one operand's gradient is what it is beside the other's, and nothing is recorded for constants") {
  const StrictBits strict;
  for (const auto& [dx, dw] : kEdgePairs) {
    const ConvCase c = edge_case(dx, dw, kStrided, 101);
    CHECK_FALSE(conv2d(Var(c.x), Var(c.w), Var(c.bias), c.g.options).tracked());
    const LinearRun both = run_conv(c);
    for (int which = 0; which < 3; ++which) {
      AccumulateSink sink;
      Tape tape;
      const auto leaf = [&](int i, const Tensor& t) { return i == which ? tape.leaf(t, &sink, dtypes::fp32) : Var(t); };
      const Var y = conv2d(leaf(0, c.x), leaf(1, c.w), leaf(2, c.bias), c.g.options);
      tape.backward({y}, {c.gy});
      CHECK((bits_of(sink.grad()) == bits_of(which == 0 ? both.gx : which == 1 ? both.gw : both.gb)));
    }
  }
}

// [cpu]: minutes on the emulated device
TEST_CASE("sums of int8 gw over more windows than int32 holds are exact", "[cpu]") {
  const int64_t windows = 4 * 182 * 184;
  REQUIRE(windows * 127 * 128 > std::numeric_limits<int32_t>::max());
  for (const int64_t channels : {3, 16}) {
    const ConvGeometry g{4, 184, 186, channels, channels, {.kernel = {3, 3}}};
    ConvCase c{g,  Tensor::full(g.x_shape(), dtypes::int8, -128), Tensor::full(g.w_shape(), dtypes::bint1, 1),
               {}, Tensor::full(g.y_shape(), dtypes::fp32, 1),    {}};
    c.modes.gx = c.modes.gw = ProductMode::kInt8;
    const LinearRun run = run_conv(c);
    // Every tap meets a pixel in each window: codes 127 and -128.
    const float expected = static_cast<float>(windows * 127 * -128) * (1.0f / 127);
    CHECK((run.gw.elements() == std::vector<double>(static_cast<size_t>(run.gw.numel()), double{expected})));
    // The pixel in the corner is read by one window, those inside by nine.
    CHECK(run.gx.as<float>()[0] == static_cast<float>(127 * channels) * (1.0f / 127));
    CHECK(run.gx.as<float>()[(50 * 186 + 50) * channels] == static_cast<float>(9 * 127 * channels) * (1.0f / 127));
  }
}

// [cpu]: the blocks of the CPU
TEST_CASE("convolutions keep no matrix of all windows: one block of 4032 and 2 MiB a thread beside what is given",
          "[cpu]") {
  if (skipped_without(isa::kAvx2)) return;  // the scalar references are exempt
  const int threads = num_threads();
  set_num_threads(2);
  const ConvGeometry g{16, 30, 30, 64, 64, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}};  // 14,400 windows
  for (const auto& [dx, dw] : kEdgePairs)
    for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kInt8}) {
      ConvCase c = edge_case(dx, dw, g, 111);
      if (dw.is_code()) c.modes.gx = mode;
      if (dx.is_code()) c.modes.gw = mode;
      const int64_t before = memory_now().total;
      reset_memory_peaks();
      const LinearRun run = run_conv(c);
      const MemoryAccount peak = memory_peak_by_kind();
      const DType gathered = dx == dtypes::bint1 ? dtypes::ternary : dx;
      const int64_t results = 4 * (g.y_shape().numel() + g.x_shape().numel() + g.w_shape().numel() + g.o),
                    seed = 4 * g.y_shape().numel(), block = 4032 * g.k() * gathered.bits() / 8;
      // gx is made as a whole, then given to its sink. int8: codes of gy beside its own, of one byte.
      const int64_t most = block + 2 * (int64_t{2} << 20) + c.x.bytes() * gathered.bits() / dx.bits() +
                           (mode == ProductMode::kInt8 ? g.y_shape().numel() : 0) + 65536;
      INFO(describe(c) << ": workspace " << peak[MemoryKind::kWorkspace] << " of " << most << ", more "
                       << peak.total - before - results - seed);
      CHECK(peak[MemoryKind::kWorkspace] <= most);
      CHECK(peak.total - before <= results + seed + 4 * g.x_shape().numel() + most);
    }
  set_num_threads(threads);
}
