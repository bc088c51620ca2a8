// Family elementwise on emulated devices, bit for bit as on the CPU.
#include "bitgrad/kernels/elementwise.h"

#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/kernel_table.h"
#include "bitgrad/kernels/quantize.h"
#include "both.h"
#include "support/expect_error.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

const std::vector<int64_t> kSizes{0, 1, 3, 4, 5, 31, 255, 256, 257, 1023, 1025, 5000};
const std::vector<int64_t> kShifts{0, 1, 2};

// body(n, shift, outcome) for sizes and unaligned arrays.
template <typename Body>
void for_sizes(Body&& body, const std::vector<int64_t>& sizes = kSizes) {
  for (const int64_t n : sizes) {
    for (const int64_t shift : kShifts) {
      CAPTURE(n, shift);
      CHECK(differing_on_device([&](Outcome& out) { body(n, shift, out); }) == 0);
    }
  }
}

TEST_CASE("Pointwise functions on the device have the bits of the CPU") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    const Placed<float> x(some_numbers(n, 1, true), shift), gy(some_numbers(n, 2), 0);
    for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op) {
      const Placed<float> y(some_numbers(n + 3, 3), shift), gx(some_numbers(n + 3, 3), shift);
      unary_forward(static_cast<UnaryOp>(op), n, x.data(), y.data());
      unary_backward(static_cast<UnaryOp>(op), n, x.data(), gy.data(), gx.data());
      out.add(y);
      out.add(gx);
    }
  });
}

TEST_CASE("Pointwise functions of bf16 on the device have the bits of the CPU") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    std::vector<float> drawn = some_numbers(n, 1, true);
    std::vector<uint16_t> narrow;
    for (const float v : drawn) narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    const Placed<uint16_t> x(narrow, shift);
    const Placed<float> gy(some_numbers(n, 2), 0);
    for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op) {
      const Placed<uint16_t> y(some_words<uint16_t>(n + 3, 3), shift);
      const Placed<float> gx(some_numbers(n + 3, 3), shift);
      unary_forward_bf16(static_cast<UnaryOp>(op), n, x.data(), y.data());
      unary_backward_bf16(static_cast<UnaryOp>(op), n, x.data(), gy.data(), gx.data());
      for (const uint16_t v : y.values()) out.floats.push_back(std::bit_cast<float>(uint32_t{v} << 16));
      out.add(gx);
    }
  });
}

TEST_CASE("Sums, products, scaling, division and clamp on the device, also in place") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    const Placed<float> a(some_numbers(n, 1, true), shift), b(some_numbers(n, 2), shift);
    const Placed<float> sum(some_numbers(n + 3, 3), shift), product(some_numbers(n + 3, 3), 1);
    const Placed<float> scaled(some_numbers(n + 3, 3), shift), self(some_numbers(n, 4, true), shift);
    add(n, a.data(), b.data(), sum.data());
    mul(n, a.data(), b.data(), product.data());
    scale(n, a.data(), 0.3f, scaled.data());
    add(n, self.data(), b.data(), self.data());
    divide(n, self.data(), 3.0f);
    out.add(self);
    clamp(n, -0.5f, 1.25f, self.data());
    for (const Placed<float>* p : {&sum, &product, &scaled, &self}) out.add(*p);
  });
}

TEST_CASE("A million numbers are added as on the CPU") {
  for_sizes(
      [](int64_t n, int64_t shift, Outcome& out) {
        if (shift > 1) return;
        const Placed<float> a(some_numbers(n, 1), shift), b(some_numbers(n, 2), shift);
        add(n, a.data(), b.data(), a.data());
        out.add(a);
      },
      {(1 << 20) + 3});
}

TEST_CASE("Rounding to bf16 and back on the device: nearest, stochastic from any element, NaN and Inf") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    const Placed<float> x(some_numbers(n, 1, true), shift), wide(some_numbers(n + 3, 2), shift);
    const Placed<uint16_t> nearest(some_words<uint16_t>(n + 3, 3), shift);
    const RandomStream draws{0x123456789ABCDEFull, Purpose::kUpdate, 77, 5};
    to_bf16(n, x.data(), nearest.data());
    from_bf16(n, nearest.data(), wide.data());
    out.add(nearest);
    out.add(wide);
    for (const uint64_t first : {uint64_t{0}, uint64_t{8}, uint64_t{3}, (uint64_t{5} << 40) + 7}) {
      const Placed<uint16_t> drawn(some_words<uint16_t>(n + 3, 3), shift);
      to_bf16_stochastic(n, x.data(), draws, first, drawn.data());
      out.add(drawn);
    }
  });
}

TEST_CASE("Moments in 8 bits on the device: codes, scales and numbers") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    const RandomStream draws{42, Purpose::kMoment, 9, 1};
    for (const bool nonfinite : {false, true}) {
      for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 40) + 5}) {
        std::vector<float> squares = some_numbers(n, 2, nonfinite);
        for (float& v : squares) v = nonfinite ? v : std::abs(v);
        const Placed<float> x(some_numbers(n, 1, nonfinite), shift), v(squares, shift);
        const auto blocks = static_cast<size_t>((n + kMomentBlock - 1) / kMomentBlock);
        const Placed<float> scales(std::vector<float>(blocks + 1, -1.0f)), roots(std::vector<float>(blocks + 1, -1.0f));
        const Placed<int8_t> q(some_words<int8_t>(n + 9, 3), shift);
        const Placed<uint8_t> r(some_words<uint8_t>(n + 9, 4), shift);
        moments_to_int8(n, x.data(), draws, first, q.data(), scales.data());
        squares_to_uint8(n, v.data(), draws, first, r.data(), roots.data());
        moments_from_int8(n, q.data(), scales.data(), x.data());
        squares_from_uint8(n, r.data(), roots.data(), v.data());
        for (const Placed<float>* p : {&scales, &roots, &x, &v}) out.add(*p);
        out.add(q);
        out.add(r);
      }
    }
  });
}

TEST_CASE("The scale of 8-bit moments stays normal for blocks of zeros and of subnormal numbers") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    const RandomStream draws{42, Purpose::kMoment, 9, 1};
    for (const float value : {0.0f, 1e-45f, 1e-38f, 1e-36f}) {
      const Placed<float> x(std::vector<float>(static_cast<size_t>(n), value), shift);
      const auto blocks = static_cast<size_t>((n + kMomentBlock - 1) / kMomentBlock);
      const Placed<float> scales(std::vector<float>(blocks, -1.0f)), roots(std::vector<float>(blocks, -1.0f));
      const Placed<int8_t> q(some_words<int8_t>(n, 3), shift);
      const Placed<uint8_t> r(some_words<uint8_t>(n, 4), shift);
      moments_to_int8(n, x.data(), draws, 0, q.data(), scales.data());
      squares_to_uint8(n, x.data(), draws, 0, r.data(), roots.data());
      out.add(scales);
      out.add(roots);
      out.add(q);
      out.add(r);
    }
  });
}

// ---- masks ----
const std::vector<std::pair<int64_t, int64_t>> kMatrices{{0, 5},  {1, 1},   {3, 63},  {3, 64},  {2, 65}, {5, 8},
                                                         {7, 12}, {4, 128}, {2, 130}, {33, 31}, {3, 300}};

template <typename Body>
void for_matrices(Body&& body) {
  for (const auto& [rows, cols] : kMatrices) {
    for (const int64_t shift : kShifts) {
      const int64_t r = rows, c = cols;
      CAPTURE(r, c, shift);
      CHECK(differing_on_device([&](Outcome& out) { body(r, c, shift, out); }) == 0);
    }
  }
}

TEST_CASE("Masked gradients on the device, garbage in the pads of the mask") {
  for_matrices([](int64_t rows, int64_t cols, int64_t shift, Outcome& out) {
    const Placed<uint64_t> mask(some_words<uint64_t>(rows * ((cols + 63) / 64), 1));
    for (const float s : {1.0f, 1.5f}) {
      const Placed<float> g(some_numbers(rows * cols, 2), shift), gx(some_numbers(rows * cols + 3, 3), shift);
      apply_mask({rows, cols, g.data(), mask.data(), s, gx.data()});
      apply_mask({rows, cols, g.data(), mask.data(), s, g.data()});
      out.add(gx);
      out.add(g);
    }
  });
}

TEST_CASE("Keep masks of dropout on the device, from any element") {
  for_matrices([](int64_t rows, int64_t cols, int64_t shift, Outcome& out) {
    const RandomStream stream{7, Purpose::kDropout, 3, static_cast<uint32_t>(shift)};
    // The last is a draw itself: such an element is kept.
    for (const uint32_t threshold : {0u, 1u, 20000u, 65535u, 65536u, uint32_t{stream.bits16(0)}}) {
      for (const int64_t first : {int64_t{0}, int64_t{1} << 35, int64_t{5}}) {
        const Placed<uint64_t> mask(some_words<uint64_t>(rows * ((cols + 63) / 64) + 1, 1));
        KeepMaskArgs args;
        args.rows = rows;
        args.cols = cols;
        args.stream = &stream;
        args.first_element = first;
        args.threshold = threshold;
        args.mask = mask.data();
        keep_mask(args);
        out.add(mask);
      }
    }
  });
}

TEST_CASE("Dropped codes on the device: every width, bint1 to ternary, zero points per tensor and per row") {
  const std::vector<DType> dtypes{dtypes::int2,  dtypes::int3,  dtypes::int4,    dtypes::int5,
                                  dtypes::int6,  dtypes::int7,  dtypes::int8,    dtypes::uint3,
                                  dtypes::uint8, dtypes::bint1, dtypes::ternary, dtypes::nf4};
  for (const DType from : dtypes) {
    const DType to = from == dtypes::bint1 ? dtypes::ternary : from;
    const bool points = from.kind() == DTypeKind::kInt || from.kind() == DTypeKind::kUint;
    CAPTURE(from.name());
    for_matrices([&](int64_t rows, int64_t cols, int64_t shift, Outcome& out) {
      if (rows == 0) return;
      // shift: words behind a dense row.
      const int64_t in_stride = row_bytes_memory(from, cols) + 8 * shift,
                    out_stride = row_bytes_memory(to, cols) + 8 * shift;
      const Placed<uint64_t> in(some_words<uint64_t>(rows * in_stride / 8, 1));
      const Placed<uint64_t> mask(some_words<uint64_t>(rows * ((cols + 63) / 64), 2));
      std::vector<int32_t> numbers(static_cast<size_t>(rows));
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<int32_t>(i) % 3 - (from.info().qmin < 0 ? 1 : 0);
      const Placed<int32_t> zero(numbers);
      for (int kind = 0; kind < (points ? 3 : 1); ++kind) {
        const Placed<uint64_t> result(std::vector<uint64_t>(static_cast<size_t>(rows * out_stride / 8), 0));
        DropCodesArgs args;
        args.rows = rows;
        args.cols = cols;
        args.from = from;
        args.to = to;
        args.in = in.data();
        args.in_stride = in_stride;
        args.mask = mask.data();
        args.zero = kind == 0 ? nullptr : zero.data();
        args.zero_step = kind == 2 ? 1 : 0;
        args.out = result.data();
        args.out_stride = out_stride;
        drop_codes(args);
        out.add(result);
      }
    });
  }
}

// ---- normalisation ----
TEST_CASE("The normalisation and its backward on the device, per column and for all") {
  for_matrices([](int64_t rows, int64_t cols, int64_t shift, Outcome& out) {
    for (const int64_t step : {0, 1}) {
      const int64_t n = rows * cols, params = step == 0 ? 1 : cols;
      const Placed<float> x(some_numbers(n, 1), shift), gy(some_numbers(n, 2), shift);
      const Placed<float> mean(some_numbers(params, 3), shift), inv(some_numbers(params, 4)),
          gamma(some_numbers(params, 5));
      const Placed<float> beta(some_numbers(params, 6), shift), mg(some_numbers(params, 7)),
          mgx(some_numbers(params, 8));
      const Placed<float> y(some_numbers(n + 3, 9), shift), y2(some_numbers(n + 3, 9));
      normalize({rows, cols, x.data(), mean.data(), inv.data(), gamma.data(), beta.data(), step, y.data()});
      normalize({rows, cols, x.data(), mean.data(), inv.data(), gamma.data(), beta.data(), step, y2.data()});
      normalize_backward({rows, cols, x.data(), gy.data(), mean.data(), inv.data(), gamma.data(), mg.data(), mgx.data(),
                          step, gy.data()});
      for (const Placed<float>* p : {&y, &y2, &gy}) out.add(*p);
    }
  });
}

// ---- updates ----
TEST_CASE("Finished gradients on the device: division, bounds, clip, and the flag of a sum that is not finite") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    for (const bool nonfinite : {false, true}) {
      for (const bool bounds : {false, true}) {
        for (const float clip : {0.0f, 0.75f}) {
          const Placed<float> g(some_numbers(n, 1, nonfinite), shift), w(some_numbers(n, 2, nonfinite), shift);
          const Placed<uint32_t> flags(std::vector<uint32_t>{4});
          FinishGradientArgs args;
          args.n = n;
          args.g = g.data();
          args.divisor = 96;
          args.w = bounds ? w.data() : nullptr;
          args.clip_value = clip;
          args.flags = flags.data();
          finish_gradient(args);
          out.add(g);
          out.add(flags);
        }
      }
    }
  });
}

TEST_CASE("NaN, Inf and -Inf each raise the flag of a finished gradient") {
  const DeviceGuard guard(Device::cuda());
  const float inf = std::numeric_limits<float>::infinity();
  for (const float value : {std::nanf(""), inf, -inf, 3e38f}) {
    const Placed<float> g(std::vector<float>{1.0f, value});
    const Placed<uint32_t> flags(std::vector<uint32_t>{0});
    FinishGradientArgs args;
    args.n = 2;
    args.g = g.data();
    args.flags = flags.data();
    finish_gradient(args);
    CHECK(flags.values()[0] == (std::isfinite(value) ? 0 : kFlagNonFinite));
  }
}

TEST_CASE("A finished gradient without a flag word may hold what is not finite") {
  const DeviceGuard guard(Device::cuda());
  const Placed<float> g(std::vector<float>{std::nanf(""), 1.0f});
  FinishGradientArgs args;
  args.n = 2;
  args.g = g.data();
  args.divisor = 2;
  CHECK(finish_gradient(args));
  CHECK(g.values()[1] == 0.5f);
}

TEST_CASE("SGD on the device: momentum, Nesterov, decay") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    for (const bool momentum : {false, true}) {
      for (const bool nesterov : {false, true}) {
        for (const float decay : {0.0f, 0.01f}) {
          const Placed<float> w(some_numbers(n, 1), shift), g(some_numbers(n, 2), shift), b(some_numbers(n, 3), shift);
          sgd_update({n, w.data(), g.data(), momentum ? b.data() : nullptr, 0.1f, 0.9f, decay, nesterov});
          out.add(w);
          out.add(b);
        }
      }
    }
  });
}

TEST_CASE("Adam on the device: coupled and decoupled decay, bias corrections on and off, averages long and short") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    for (const float correction : {1.0f, 0.1f, 0.2f, 0.3f}) {
      for (const float decay : {0.0f, 0.7f}) {
        for (const bool decoupled : {false, true}) {
          std::vector<float> squares = some_numbers(n, 4);
          for (float& v : squares) v = std::abs(v);
          const Placed<float> w(some_numbers(n, 1), shift), m(some_numbers(n, 3), shift), v(squares, shift);
          const Placed<float> g(some_numbers(n, 2), shift);
          AdamArgs args;
          args.n = n;
          args.w = w.data();
          args.m = m.data();
          args.v = v.data();
          args.g = g.data();
          args.lr = 0.3f;  // so large that the order of the products shows
          args.c1 = correction;
          args.c2 = correction == 1.0f ? 1.0f : 0.001f;
          args.weight_decay = decay;
          args.decoupled = decoupled;
          if (correction == 0.2f) {
            args.a1 = 0.75f;
            args.b1 = 0.25f;
          }
          if (correction == 0.3f) {
            args.a2 = 1.0f;
            args.b2 = 0.0f;
          }
          adam_update(args);
          for (const Placed<float>* p : {&w, &m, &v}) out.add(*p);
        }
      }
    }
  });
}

TEST_CASE("Bop on the device") {
  for_sizes([](int64_t n, int64_t shift, Outcome& out) {
    std::vector<float> signs = some_numbers(n, 1);
    for (float& v : signs) v = v >= 0 ? 1.0f : -1.0f;
    for (const float gamma : {0.1f, 0.5f, 1.0f}) {
      const Placed<float> w(signs, shift), m(some_numbers(n, 2), shift), g(some_numbers(n, 3), shift);
      bop_update({n, w.data(), m.data(), g.data(), gamma, 0.05f});
      out.add(w);
      out.add(m);
    }
  });
}

TEST_CASE("fp64 stays on the CPU: the device says so") {
  const DeviceGuard guard(Device::cuda());
  double x = 1, y = 0;
  const auto call = [&] { unary_forward(UnaryOp::relu, 1, &x, &y); };
  CHECK(contains(error_of(call), "fp64 is the reference dtype of the CPU"));
  CHECK(error_code_of(call) == static_cast<int>(ErrorCode::kDevice));
}

}  // namespace
}  // namespace bitgrad::test
