// Gradients of linear: their dtypes, sums over microbatches, bias, and the memory that they take.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/gemm.h"
#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/needs.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// Blocks of 64 rows; each waits until two are taken at the same time. The first wait ends alone only where nobody
// comes.
class MeetingRows final : public GradRows, public GradSink {
 public:
  explicit MeetingRows(const Shape& shape) : sum(Tensor::zeros(shape, dtypes::fp32)) {}
  int64_t block_rows() const override { return 64; }
  void begin() override {}
  void consume(int64_t first, const Tensor& g) override {
    std::unique_lock lock(mutex_);
    sum.row_slice(first, first + g.rows()).copy_from(g);
    met = met || ++inside_ > 1;
    changed_.notify_all();
    const auto decided = [&] { return met || alone_; };
    alone_ = !changed_.wait_for(lock, std::chrono::minutes(10), decided) || alone_;
    --inside_;
  }
  void done() override {}
  GradRows* rows(const Shape&, DType) override { return this; }
  GradTarget target(const Shape&, DType) override { return {sum}; }

  Tensor sum;
  bool met = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool alone_ = false;
};

}  // namespace

// [cpu]: a device gives gradients whole (tests/cuda/autograd_test.cpp)
TEST_CASE("threads share the blocks of rows of a gradient, of few and of many rows, and its bits stay", "[cpu]") {
  const StrictBits strict;
  const int threads = num_threads();
  for (const int64_t rows : {128, 200, 1030})
    for (const DType dx : {dtypes::fp32, dtypes::bint1}) {
      const Tensor x = random_tensor({9, 40}, dx, 121), w = random_tensor({rows, 40}, dtypes::bint1, 122),
                   gy = random_tensor({9, rows}, dtypes::fp32, 123);
      set_num_threads(2);
      MeetingRows blocks(w.shape());
      Tape tape;
      tape.backward({linear(Var(x), tape.leaf(w, &blocks, dtypes::fp32))}, {gy});
      set_num_threads(threads);
      CHECK(blocks.met);
      CHECK(bits_of(blocks.sum) == bits_of(run_linear(x, w, gy).gw));
    }
}

// So many blocks of rows that the bits of x are transposed once for all of them where that is cheaper than to read them
// as they lie in each call (the first shape, on the tile unit).
// [cpu]: a device gives gradients whole (tests/cuda/autograd_test.cpp)
TEST_CASE("blocks of rows of a gradient have the bits of the whole, for codes of few bits in every mode", "[cpu]") {
  const RandomStream draws{5, Purpose::kGradientWeight, 7, 3};
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{100, 2003}, {64, 33}, {31, 16}}) {
    const Tensor w = random_tensor({1030, n}, dtypes::bint1, 132), gy = random_tensor({k, 1030}, dtypes::fp32, 133);
    for (const Granularity& granularity : {Granularity::tensor(), Granularity::token()}) {
      for (const DType dx : {dtypes::bint1, dtypes::int1, dtypes::int2}) {
        const Tensor x = random_codes({k, n}, dx, 131, granularity);
        for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8}) {
          ProductModes modes;
          modes.gw = mode;
          modes.sr = mode == ProductMode::kInt8 ? &draws : nullptr;
          MeetingRows blocks(w.shape());
          blocks.met = true;
          AccumulateSink whole;
          Tape taken, kept;
          taken.backward({linear(Var(x), taken.leaf(w, &blocks, dtypes::fp32), Var(), modes)}, {gy});
          kept.backward({linear(Var(x), kept.leaf(w, &whole, dtypes::fp32), Var(), modes)}, {gy});
          INFO("x [" << k << "," << n << "] " << dx << ", mode " << static_cast<int>(mode));
          const bool equal = bits_of(blocks.sum) == bits_of(whole.grad());
          CHECK(equal);
        }
      }
    }
  }
}

TEST_CASE("a gradient in bf16 is the fp32 sum rounded once, for every weight dtype") {
  const StrictBits strict;
  for (const DType dw : code_dtypes()) {
    const Tensor x = random_tensor({9, 600}, dtypes::int8, 91), w = random_tensor({7, 600}, dw, 92),
                 gy = random_tensor({9, 7}, dtypes::fp32, 93);
    const LinearRun wide = run_linear(x, w, gy), narrow = run_linear(x, w, gy, dtypes::bf16, dtypes::bf16);
    CHECK(narrow.gw.dtype() == dtypes::bf16);
    bool equal = true;
    for (int64_t i = 0; i < wide.gw.numel(); ++i)
      equal = equal && narrow.gw.as<uint16_t>()[i] == bf16_from_float(wide.gw.as<float>()[i]);
    for (int64_t i = 0; i < wide.gx.numel(); ++i)
      equal = equal && narrow.gx.as<uint16_t>()[i] == bf16_from_float(wide.gx.as<float>()[i]);
    if (!equal) FAIL_CHECK("weights " << w);
  }
}

TEST_CASE("sums over microbatches add the unrounded gradient: grad = round(float(grad) + g)") {
  const StrictBits strict;
  const Tensor w = random_codes({6, 70}, dtypes::int4, 94, Granularity::channel(0));
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    AccumulateSink sum;
    const RandomStream draws{5, Purpose::kGradAccumulate, 7, 3};
    std::vector<float> expected(static_cast<size_t>(w.numel()), 0.0f);
    for (int microbatch = 0; microbatch < 6; ++microbatch) {
      const bool stochastic = grad == dtypes::bf16 && microbatch >= 3;
      const Tensor x = random_tensor({5, 70}, dtypes::fp32, 95 + static_cast<uint64_t>(microbatch)),
                   gy = random_tensor({5, 6}, dtypes::fp32, 195 + static_cast<uint64_t>(microbatch));
      sum.set_rounding(stochastic ? &draws : nullptr);
      {
        Tape tape;
        tape.backward({linear(Var(x), tape.leaf(w, &sum, grad))}, {gy});
      }
      const Tensor g = run_linear(x, w, gy).gw;
      for (size_t i = 0; i < expected.size(); ++i) {
        const float total = microbatch == 0 ? g.as<float>()[i] : expected[i] + g.as<float>()[i];
        if (grad == dtypes::fp32)
          expected[i] = total;
        else
          expected[i] =
              bf16_to_float(stochastic ? bf16_from_float_stochastic(total, draws.bits16(i)) : bf16_from_float(total));
      }
      CHECK(sum.grad().elements() == std::vector<double>(expected.begin(), expected.end()));
    }
    CHECK(sum.grad().dtype() == grad);
  }
}

TEST_CASE("the gradient of the bias is the column sum, also from a bf16 edge") {
  const Tensor x = random_tensor({40, 3}, dtypes::fp32, 101), w = random_tensor({4, 3}, dtypes::ternary, 102),
               bias = random_tensor({4}, dtypes::fp32, 103);
  const Tensor gy = random_tensor({40, 4}, dtypes::bf16, 104);
  AccumulateSink sb;
  Tape tape;
  Var y = linear(Var(x), Var(w), tape.leaf(bias, &sb, dtypes::fp32));
  y.want_grad(dtypes::bf16);
  tape.backward({y}, {gy});
  for (int64_t c = 0; c < 4; ++c) {
    double expected = 0;
    for (int64_t r = 0; r < 40; ++r) expected += bf16_to_float(gy.as<uint16_t>()[r * 4 + c]);
    CHECK(std::fabs(sb.grad().as<float>()[c] - expected) <= 1e-5);
  }
}

TEST_CASE("a bf16 edge between two linears carries the rounded gradient") {
  const StrictBits strict;
  const Tensor x = random_tensor({8, 20}, dtypes::fp32, 105), w1 = random_tensor({16, 20}, dtypes::bint1, 106),
               w2 = random_tensor({4, 16}, dtypes::int2, 107);
  const Tensor gy = random_tensor({8, 4}, dtypes::fp32, 108);
  AccumulateSink g1;
  Tape tape;
  Var hidden = linear(Var(x), tape.leaf(w1, &g1, dtypes::fp32));
  hidden.want_grad(dtypes::bf16);
  tape.backward({linear(hidden, Var(w2))}, {gy});
  const Tensor gh = run_linear(hidden.value(), w2, gy).gx;
  const Tensor rounded = Tensor::from_elements(gh.shape(), dtypes::bf16, gh.elements());
  const Tensor widened = Tensor::from_elements(gh.shape(), dtypes::fp32, rounded.elements());
  CHECK(bits_of(g1.grad()) == bits_of(run_linear(x, w1, widened).gw));
}

TEST_CASE("nothing is computed for operands that want no gradient") {
  const Tensor x = random_tensor({2, 5}, dtypes::fp32, 109), w = random_tensor({3, 5}, dtypes::int4, 110);
  CHECK_FALSE(linear(Var(x), Var(w)).tracked());
  AccumulateSink sink;
  Tape tape;
  tape.backward({linear(Var(x), tape.leaf(w, &sink, dtypes::fp32))}, {Tensor::full({2, 3}, dtypes::fp32, 1)});
  CHECK(sink.filled());
}

// [cpu]: scratch of the CPU's rows
TEST_CASE("optimized rows expand at most 1 MiB of an operand per thread, and nothing keeps a float copy", "[cpu]") {
  if (skipped_without(isa::kAvx2)) return;  // the scalar references are exempt
  const int threads = num_threads();
  set_num_threads(2);
  const int64_t n = 512, f = 1024, o = 1024, mib = 1 << 20;
  const struct {
    DType x, w;
  } pairs[] = {{dtypes::bint1, dtypes::bint1},
               {dtypes::ternary, dtypes::bint1},
               {dtypes::uint8, dtypes::int4},
               {dtypes::fp32, dtypes::bint1},
               {dtypes::int4, dtypes::nf4}};
  for (const auto& p : pairs) {
    const Tensor x = random_codes({n, f}, p.x, 111), w = random_codes({o, f}, p.w, 112, Granularity::channel(0)),
                 gy = random_tensor({n, o}, dtypes::fp32, 113);
    const Tensor x_here = p.x == dtypes::fp32 ? x.without_quant() : x;
    const int64_t before = memory_now().total;
    reset_memory_peaks();
    const LinearRun run = run_linear(x_here, w, gy);
    const MemoryAccount peak = memory_peak_by_kind();
    INFO("x " << p.x << ", w " << p.w << ", workspace " << peak[MemoryKind::kWorkspace]);
    CHECK(peak[MemoryKind::kWorkspace] <= 2 * mib);
    // Results: y, gx, gW; beside them the seed's copy on its edge, x packed anew, and the workspace.
    const int64_t results = 4 * (n * o + n * f + o * f), seed = 4 * n * o;
    CHECK(peak.total - before <= results + seed + x_here.bytes() + 2 * mib + 4096);
  }
  set_num_threads(threads);
}
