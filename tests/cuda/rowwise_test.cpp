// Family rowwise on emulated devices, bit for bit as on the CPU.
#include "bitgrad/kernels/rowwise.h"

#include "both.h"
#include "support/expect_error.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

// A matrix on the current device, fp32 or bf16. tame: numbers whose exp is neither 0 nor Inf, with a few that are.
struct PlacedRows {
  PlacedRows(int64_t n, DType d, uint32_t seed, bool nonfinite = false)
      : wide(d == dtypes::bf16 ? std::vector<float>{} : floats(n, seed, nonfinite)),
        narrow(d == dtypes::bf16 ? words(floats(n, seed, nonfinite)) : std::vector<uint16_t>{}),
        dtype(d) {}
  static std::vector<float> floats(int64_t n, uint32_t seed, bool nonfinite) {
    std::vector<float> x = some_numbers(n, seed, nonfinite);
    for (float& v : x)
      if (std::abs(v) > 1e30f && std::isfinite(v)) v = v > 0 ? 30.0f : -90.0f;
    return x;
  }
  static std::vector<uint16_t> words(const std::vector<float>& x) {
    std::vector<uint16_t> out;
    for (const float v : x) out.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    return out;
  }
  void* place() const { return dtype == dtypes::bf16 ? static_cast<void*>(narrow.data()) : wide.data(); }
  FloatsIn in() const { return {place(), dtype}; }
  FloatsOut out() const { return {place(), dtype}; }
  void leave(Outcome& outcome) const {
    outcome.add(wide);
    for (const uint16_t v : narrow.values()) outcome.floats.push_back(std::bit_cast<float>(uint32_t{v} << 16));
  }
  Placed<float> wide;
  Placed<uint16_t> narrow;
  DType dtype;
};

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{1, 1},    {9, 3},    {5, 15},   {8, 16},
                                                          {17, 17},  {3, 300},  {2, 1023}, {9, 1024},
                                                          {2, 1025}, {3, 2048}, {2, 3100}, {1, 33000}};

// body(rows, cols, dtype, nonfinite, outcome) over shapes and dtypes.
template <typename Body>
void for_rows(Body&& body) {
  for (const auto& [r, c] : kShapes)
    for (const DType dtype : {dtypes::fp32, dtypes::bf16})
      for (const bool nonfinite : {false, true}) {
        const int64_t rows = r, cols = c;
        CAPTURE(rows, cols, dtype.bits(), nonfinite);
        CHECK(differing_on_device([&](Outcome& out) { body(rows, cols, dtype, nonfinite, out); }) == 0);
      }
}

std::vector<int32_t> drawn_targets(int64_t rows, int64_t cols) {
  std::vector<int32_t> out;
  for (int64_t r = 0; r < rows; ++r)
    out.push_back(r % 4 == 2 || (rows == 2 && r == 1) ? -5 : static_cast<int32_t>((r * 29 + cols / 3) % cols));
  return out;
}

}  // namespace

TEST_CASE("Softmax of rows and its backward on the device, also in place") {
  for_rows([](int64_t rows, int64_t cols, DType dtype, bool nonfinite, Outcome& out) {
    const PlacedRows x(rows * cols, dtype, 1, nonfinite), y(rows * cols + 3, dtype, 2);
    const PlacedRows gy(rows * cols, dtypes::fp32, 3), narrow_gy(rows * cols, dtypes::bf16, 4);
    const PlacedRows gx(rows * cols + 3, dtypes::fp32, 5);
    softmax_rows({rows, cols, x.in(), y.out()});
    y.leave(out);
    softmax_rows_backward({rows, cols, y.in(), gy.in(), gx.out()});
    gx.leave(out);
    softmax_rows_backward({rows, cols, y.in(), narrow_gy.in(), gx.out()});
    gx.leave(out);
    softmax_rows({rows, cols, x.in(), x.out()});
    x.leave(out);
  });
}

TEST_CASE("Layer norm and RMS norm on the device, forward and backward") {
  for (const bool centered : {true, false})
    for_rows([&](int64_t rows, int64_t cols, DType dtype, bool nonfinite, Outcome& out) {
      const PlacedRows x(rows * cols, dtype, 1, nonfinite), y(rows * cols + 3, dtype, 2);
      const PlacedRows gamma(cols, dtypes::fp32, 3), beta(cols, dtypes::fp32, 4);
      const PlacedRows mean(rows + 1, dtypes::fp32, 5), inv(rows + 1, dtypes::fp32, 6);
      NormRowsArgs args;
      args.rows = rows;
      args.cols = cols;
      args.x = x.in();
      args.centered = centered;
      args.gamma = gamma.in();
      args.y = y.out();
      args.mean = mean.out();
      args.inv = inv.out();
      norm_rows(args);
      y.leave(out);
      args.beta = beta.in();
      norm_rows(args);
      y.leave(out);
      mean.leave(out);
      inv.leave(out);
      const PlacedRows gy(rows * cols, nonfinite ? dtypes::bf16 : dtypes::fp32, 7),
          gx(rows * cols + 3, dtypes::fp32, 8);
      const PlacedRows ggamma(cols + 1, dtypes::fp32, 9), gbeta(cols + 1, dtypes::fp32, 10);
      NormRowsBackwardArgs back;
      back.rows = rows;
      back.cols = cols;
      back.x = x.in();
      back.gy = gy.in();
      back.centered = centered;
      back.gamma = gamma.in();
      back.mean = mean.in();
      back.inv = inv.in();
      back.gx = gx.out();
      norm_rows_backward(back);
      gx.leave(out);
      if (cols > 4000) return;  // sums down the rows of many columns take the emulation long
      back.ggamma = ggamma.out();
      norm_rows_backward(back);
      back.gbeta = gbeta.out();
      back.ggamma = {};
      norm_rows_backward(back);
      for (const PlacedRows* p : {&gx, &ggamma, &gbeta}) p->leave(out);
    });
}

TEST_CASE("Gradients of scale and shift over many rows on the device") {
  for (const auto& [r, c] : {std::pair<int64_t, int64_t>{1024, 3}, {1025, 34}, {2100, 5}}) {
    const int64_t rows = r, cols = c;
    CHECK(differing_on_device([&](Outcome& out) {
            const PlacedRows x(rows * cols, dtypes::bf16, 1), gy(rows * cols, dtypes::fp32, 2);
            const PlacedRows mean(rows, dtypes::fp32, 3), inv(rows, dtypes::fp32, 4);
            const PlacedRows ggamma(cols, dtypes::fp32, 5), gbeta(cols, dtypes::fp32, 6);
            NormRowsBackwardArgs back;
            back.rows = rows;
            back.cols = cols;
            back.x = x.in();
            back.gy = gy.in();
            back.mean = mean.in();
            back.inv = inv.in();
            back.ggamma = ggamma.out();
            back.gbeta = gbeta.out();
            norm_rows_backward(back);
            ggamma.leave(out);
            gbeta.leave(out);
          }) == 0);
  }
}

TEST_CASE("Cross-entropy of rows on the device: losses, gradients, ignored rows, flags") {
  for_rows([](int64_t rows, int64_t cols, DType dtype, bool nonfinite, Outcome& out) {
    std::vector<int32_t> drawn = drawn_targets(rows, cols);
    if (nonfinite) drawn.back() = static_cast<int32_t>(cols);
    const Placed<int32_t> targets(drawn);
    const PlacedRows x(rows * cols, dtype, 1, nonfinite), gx(rows * cols + 3, dtypes::fp32, 2);
    const PlacedRows loss(rows + 1, dtypes::fp32, 3), top(rows + 1, dtypes::fp32, 4), total(rows + 1, dtypes::fp32, 5);
    const Placed<float> factor(std::vector<float>{0.37f});
    const Placed<uint32_t> flags(std::vector<uint32_t>{8});
    cross_entropy_rows({rows, cols, x.in(), targets.data(), -5, loss.out(), top.out(), total.out(), flags.data()});
    cross_entropy_rows_backward(
        {rows, cols, x.in(), targets.data(), -5, top.in(), total.in(), {factor.data(), dtypes::fp32}, gx.out()});
    for (const PlacedRows* p : {&loss, &total, &gx}) p->leave(out);
    out.add(flags);
  });
}

TEST_CASE("Ranks of targets on the device") {
  for_rows([](int64_t rows, int64_t cols, DType dtype, bool nonfinite, Outcome& out) {
    const PlacedRows x(rows * cols, dtype, 1, nonfinite);
    const Placed<int32_t> targets(drawn_targets(rows, cols)), ranks(some_words<int32_t>(rows + 2, 3));
    const Placed<uint32_t> flags(std::vector<uint32_t>{0});
    target_ranks({rows, cols, x.in(), targets.data(), -5, ranks.data(), flags.data()});
    out.add(ranks);
    out.add(flags);
  });
}

TEST_CASE("A row of more chunks than lie in shared memory at a time", "[slow]") {
  const int64_t cols = 2048 * 1024 + 1500;
  CHECK(differing_on_device([&](Outcome& out) {
          const PlacedRows x(cols, dtypes::bf16, 1), gx(cols, dtypes::fp32, 2);
          const Placed<int32_t> target(std::vector<int32_t>{7});
          const PlacedRows loss(1, dtypes::fp32, 3), top(1, dtypes::fp32, 4), total(1, dtypes::fp32, 5);
          cross_entropy_rows({1, cols, x.in(), target.data(), -5, loss.out(), top.out(), total.out(), nullptr});
          for (const PlacedRows* p : {&loss, &top, &total}) p->leave(out);
        }) == 0);
}

TEST_CASE("Rows of doubles are refused on the device by name") {
  const DeviceGuard guard(Device::cuda());
  CHECK(contains(error_of([] {
                   softmax_rows({1, 1, {nullptr, dtypes::fp64}, {nullptr, dtypes::fp64}});
                 }),
                 "[softmax_rows] fp64 is the reference dtype of the CPU"));
}

}  // namespace bitgrad::test
