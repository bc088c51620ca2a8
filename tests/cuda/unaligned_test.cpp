// Kernels that take several elements at a time where arrays lie on them: at other addresses they give the same bits.
#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "both.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

// body(n, shift, outcome): arrays of n elements, `shift` elements behind an aligned address.
template <typename Body>
void check_shifts(const std::vector<int64_t>& sizes, Body&& body) {
  const DeviceGuard guard(Device::cuda());
  for (const int64_t n : sizes) {
    Outcome aligned;
    body(n, 0, aligned);
    for (const int64_t shift : {1, 2, 3}) {
      CAPTURE(n, shift);
      Outcome shifted;
      body(n, shift, shifted);
      CHECK(differing(aligned, shifted) == 0);
    }
  }
}
const std::vector<int64_t> kSizes{0, 1, 3, 4, 5, 31, 257, 1030};
const std::vector<int64_t> kColumns{1, 7, 8, 9, 64, 68, 130, 516};  // of three rows

const RandomStream kDraws{0x123456789ABCDEFull, Purpose::kUpdate, 77, 5};

std::vector<float> squares(int64_t n) {
  std::vector<float> x = some_numbers(n, 4);
  for (float& v : x) v = std::abs(v);
  return x;
}

TEST_CASE("Functions of one array and of several, also in place, anywhere in memory") {
  check_shifts(kSizes, [](int64_t n, int64_t shift, Outcome& out) {
    const Placed<float> x(some_numbers(n, 1, true), shift), gy(some_numbers(n, 2), 0);
    const Placed<float> y(some_numbers(n + 3, 3), shift), gx(some_numbers(n + 3, 3), 0);
    unary_forward(UnaryOp::hardtanh, n, x.data(), y.data());
    unary_backward(UnaryOp::hardtanh, n, x.data(), gy.data(), gx.data());
    out.add(y);
    add(n, x.data(), gy.data(), x.data());
    const Placed<float> w(some_numbers(n, 5), 0), m(some_numbers(n, 6), 0), v(squares(n), shift);
    AdamArgs args;
    args.n = n;
    args.w = w.data();
    args.m = m.data();
    args.v = v.data();
    args.g = gy.data();
    args.lr = 0.3f;
    adam_update(args);
    for (const Placed<float>* p : {&gx, &x, &w, &m, &v}) out.add(*p);
  });
}

TEST_CASE("Conversions to bf16 and to moments in 8 and 4 bits, anywhere in memory") {
  check_shifts(kSizes, [](int64_t n, int64_t shift, Outcome& out) {
    const Placed<float> x(some_numbers(n, 1), shift), wide(some_numbers(n + 3, 2), 0), v(squares(n), 0);
    const Placed<uint16_t> nearest(some_words<uint16_t>(n + 3, 3), 0), drawn(some_words<uint16_t>(n + 3, 3), shift);
    to_bf16(n, x.data(), nearest.data());
    from_bf16(n, nearest.data(), wide.data());
    to_bf16_stochastic(n, x.data(), kDraws, 3, drawn.data());
    unary_forward(UnaryOp::relu, n, {drawn.data(), dtypes::bf16}, {drawn.data(), dtypes::bf16});
    const auto blocks = static_cast<size_t>((n + kMomentBlock - 1) / kMomentBlock);
    const Placed<float> scales(std::vector<float>(blocks + 1, -1.0f)), roots(std::vector<float>(blocks + 1, -1.0f));
    const Placed<uint8_t> q(some_words<uint8_t>(n + 9, 3), shift), r(some_words<uint8_t>(n + 9, 4), shift);
    for (const int bits : {8, 4}) {
      const MomentCodes means{bits, MomentValues::kMeans, q.data(), scales.data()},
          of_squares{bits, MomentValues::kSquares, r.data(), roots.data()};
      narrow_moments(n, x.data(), kDraws, 8, means);
      narrow_moments(n, v.data(), kDraws, 8, of_squares);
      widen_moments(n, means, x.data());
      widen_moments(n, of_squares, v.data());
      for (const Placed<float>* p : {&wide, &scales, &roots, &x, &v}) out.add(*p);
      for (const Placed<uint8_t>* p : {&q, &r}) out.add(*p);
    }
    out.add(nearest);
    out.add(drawn);
  });
}

TEST_CASE("Masked gradients and normalisations of columns, anywhere in memory") {
  check_shifts(kColumns, [](int64_t cols, int64_t shift, Outcome& out) {
    constexpr int64_t kRows = 3;
    const int64_t n = kRows * cols;
    const Placed<uint64_t> mask(some_words<uint64_t>(kRows * ((cols + 63) / 64), 1));
    const Placed<float> g(some_numbers(n, 2), shift), gx(some_numbers(n + 3, 3), 0);
    apply_mask({kRows, cols, g.data(), mask.data(), 1.5f, gx.data()});
    const Placed<float> x(some_numbers(n, 1), 0), y(some_numbers(n, 9), shift), mean(some_numbers(cols, 3), shift),
        inv(some_numbers(cols, 4)), gamma(some_numbers(cols, 5)), beta(some_numbers(cols, 6));
    normalize({kRows, cols, x.data(), mean.data(), inv.data(), gamma.data(), beta.data(), 1, y.data()});
    normalize_backward({kRows, cols, x.data(), g.data(), mean.data(), inv.data(), gamma.data(), beta.data(),
                        gamma.data(), 1, g.data()});
    for (const Placed<float>* p : {&gx, &y, &g}) out.add(*p);
  });
}

TEST_CASE("Numbers that are not finite are found anywhere in memory") {
  const DeviceGuard guard(Device::cuda());
  for (const int64_t n : {1, 4, 5, 255, 1030})
    for (const int64_t shift : {0, 1}) {
      CAPTURE(n, shift);
      std::vector<float> values(static_cast<size_t>(n), 3e38f);
      CHECK(all_finite(Placed<float>(values, shift).data(), n));
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        std::vector<float> bad = values;
        bad[static_cast<size_t>(at)] = at % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
        CHECK_FALSE(all_finite(Placed<float>(bad, shift).data(), n));
      }
    }
}

TEST_CASE("Codes, clipped gradients and values of codes, anywhere in memory and at any stride") {
  for (const DType dtype : {dtypes::bint1, dtypes::int3, dtypes::int8})
    check_shifts(kColumns, [&](int64_t cols, int64_t shift, Outcome& out) {
      constexpr int64_t kRows = 3;
      const int64_t n = kRows * cols, stride = row_bytes_memory(dtype, cols);
      // Codes begin on 8 bytes; an odd stride in words of 4 bytes moves the rows behind the first.
      const int64_t code_shift = 8 * shift, code_stride = stride + 4 * shift;
      const Placed<float> x(some_numbers(n, 1), shift), g(some_numbers(n, 2), shift), gx(some_numbers(n, 3), 0),
          y(some_numbers(n, 4), shift);
      const Placed<uint8_t> codes(std::vector<uint8_t>(static_cast<size_t>(kRows * code_stride), 0), code_shift);
      const Placed<uint64_t> mask(some_words<uint64_t>(kRows * ((cols + 63) / 64), 1));
      QuantizeArgs args;
      args.rows = kRows;
      args.cols = args.ldx = cols;
      args.x = x.data();
      args.dtype = dtype;
      args.codes = codes.data();
      args.stride = code_stride;
      args.rule = dtype == dtypes::bint1 ? CodeRule::kSign : CodeRule::kInverse;
      args.lo = dtype.info().qmin;
      args.hi = dtype.info().qmax;
      args.ste = SteRule::kClip;
      args.mask = mask.data();
      quantize(args);
      clip_gradient(args, g.data(), gx.data());
      dequantize({kRows, cols, dtype, codes.data(), code_stride, {}, y.data(), cols});
      const std::vector<uint8_t> written = codes.values();
      for (int64_t r = 0; r < kRows; ++r)
        out.bytes.insert(out.bytes.end(), written.begin() + r * code_stride,
                         written.begin() + r * code_stride + stride);
      out.add(mask);
      out.add(gx);
      out.add(y);
    });
}

}  // namespace
}  // namespace bitgrad::test
