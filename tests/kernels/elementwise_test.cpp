// Family elementwise against formulas spelled out here, with == where the order is defined; every ISA, any number of
// threads.
#include "kernels/elementwise.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> numbers(int64_t n, uint32_t seed, bool nonfinite = false) {
  static constexpr float kSpecial[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -3e-41f, 3e38f, -3e38f, 1.17549435e-38f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t kind = random() % 10;
    x.push_back(kind == 0 ? kSpecial[random() % std::size(kSpecial)] : normal(random));
    if (nonfinite && kind == 1) x.back() = random() % 2 == 0 ? kNan : (random() % 2 == 0 ? kInf : -kInf);
  }
  return x;
}

// Number of elements that differ in a bit; two NaN are equal.
int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t count = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]));
  }
  return count;
}

constexpr int64_t kSizes[] = {0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 130, 16384 + 33};

template <typename Formula>
void check_pointwise(int64_t n, const std::vector<float>& y, Formula&& formula) {
  std::vector<float> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(formula(static_cast<size_t>(i)));
  CHECK(differing(y, expected) == 0);
}

}  // namespace

TEST_CASE("add, mul, scale, divide and clamp are one rounded operation an element, also in place") {
  test::everywhere([] {
    for (int64_t n : kSizes) {
      const std::vector<float> a = numbers(n, 1, true), b = numbers(n, 2, true);
      std::vector<float> y(static_cast<size_t>(n));
      add(n, a.data(), b.data(), y.data());
      check_pointwise(n, y, [&](size_t i) { return a[i] + b[i]; });
      mul(n, a.data(), b.data(), y.data());
      check_pointwise(n, y, [&](size_t i) { return a[i] * b[i]; });
      y = a;
      add(n, y.data(), y.data(), y.data());
      check_pointwise(n, y, [&](size_t i) { return a[i] + a[i]; });
      scale(n, a.data(), 0.3f, y.data());
      check_pointwise(n, y, [&](size_t i) { return a[i] * 0.3f; });
      y = a;
      divide(n, y.data(), 3.0f);
      check_pointwise(n, y, [&](size_t i) { return a[i] / 3.0f; });
      y = a;
      clamp(n, -1.0f, 0.5f, y.data());
      check_pointwise(n, y, [&](size_t i) {
        return std::isnan(a[i]) ? kNan : a[i] < -1.0f ? -1.0f : a[i] > 0.5f ? 0.5f : a[i];
      });
    }
  });
}

TEST_CASE(
    "the gradient of rule tanh has the bits of its formula on every ISA, over all exponents, in place and added") {
  std::vector<float> x = numbers(4099, 7, true);
  for (uint32_t e = 0; e < 255; ++e)  // every exponent, with all kinds of mantissas
    for (uint32_t m = 0; m < 9; ++m)
      x.push_back(std::bit_cast<float>((m % 2) << 31 | e << 23 | (m * 0x1C71C7u & 0x7FFFFFu)));
  for (const float edge : {0.0625f, 10.0f, 9.02f, 0.00034526698f})  // where a branch of tanh or 1 - tanh^2 ends
    for (int step = -3; step <= 3; ++step) {
      x.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(edge) + static_cast<uint32_t>(step)));
      x.push_back(-x.back());
    }
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<float> g = numbers(n, 8, true), sum = numbers(n, 9, true);
  test::everywhere([&] {
    for (const float t : {1e-3f, 0.1f, 1.0f, 2.5f, 10.0f}) {
      INFO("t " << t);
      const auto product = [&](size_t i) {
        const float y = math::tanh(t * x[i]);
        return g[i] * ((t < 1 ? 1.0f : t) * (1.0f - y * y));
      };
      std::vector<float> gx = g;
      cpu::tanh_gradient(n, t, x.data(), gx.data(), nullptr, gx.data());
      check_pointwise(n, gx, product);
      gx = sum;
      cpu::tanh_gradient(n, t, x.data(), g.data(), gx.data(), gx.data());
      check_pointwise(n, gx, [&](size_t i) { return sum[i] + product(i); });
    }
    for (const int64_t count : kSizes) {  // of small numbers alone, which take a way of their own
      if (count > n) continue;
      std::vector<float> tiny(x.begin(), x.begin() + count), gx(static_cast<size_t>(count) + 1, 77.0f);
      for (float& v : tiny) v = std::isfinite(v) && std::fabs(v) < 50 ? v : 1.0f;
      cpu::tanh_gradient(count, 1e-3f, tiny.data(), g.data(), sum.data(), gx.data());
      CHECK(gx.back() == 77.0f);
      gx.pop_back();
      check_pointwise(count, gx, [&](size_t i) {
        const float y = math::tanh(1e-3f * tiny[i]);
        return sum[i] + g[i] * (1.0f - y * y);
      });
    }
  });
}

TEST_CASE(
    "a sum and its hardtanh in one pass have the bits of add and hardtanh, and keep what its backward multiplies by") {
  test::everywhere([] {
    for (int64_t n : kSizes) {
      std::vector<float> a = numbers(n, 1, true), b = numbers(n, 2, true);
      for (size_t i = 0; i < a.size(); i += 3) b[i] = static_cast<float>(i % 5) - 2.0f - a[i];  // sums at the bounds
      for (size_t i = 0; i < a.size(); i += 7) a[i] = i % 2 == 0 ? 1.0f : -1.0f, b[i] = i % 4 < 2 ? 0.0f : -1e-7f;
      const std::vector<float> g = numbers(n, 3, true);
      std::vector<float> sum(a), y(a), gx(g), want(a), wanted_gx(g);
      add(n, a.data(), b.data(), sum.data());
      unary_forward(UnaryOp::hardtanh, n, sum.data(), want.data());
      unary_backward(UnaryOp::hardtanh, n, sum.data(), g.data(), wanted_gx.data());
      std::vector<uint64_t> inside(static_cast<size_t>((n + 63) / 64) + 1, 77);
      cpu::add_hardtanh(n, y.data(), b.data(), y.data(), inside.data());
      CHECK(differing(y, want) == 0);
      CHECK(inside.back() == 77);
      if (n % 64 != 0) CHECK(inside[static_cast<size_t>(n / 64)] >> (n % 64) == 0);
      cpu::times_bits(n, gx.data(), inside.data(), gx.data());
      CHECK(differing(gx, wanted_gx) == 0);
      std::vector<float> without(a.size());
      cpu::add_hardtanh(n, a.data(), b.data(), without.data(), nullptr);
      CHECK(differing(without, want) == 0);
    }
  });
}

TEST_CASE("conversions to and from bf16 are those of dtype, and lookup reads the table") {
  test::everywhere([] {
    for (int64_t n : kSizes) {
      std::vector<float> x = numbers(n, 3, true), back(static_cast<size_t>(n));
      for (size_t i = 0; i < x.size(); i += 5)
        x[i] = std::bit_cast<float>(static_cast<uint32_t>(0x3F808000u + i * 0x10000u));  // ties
      std::vector<uint16_t> y(static_cast<size_t>(n)), expected;
      to_bf16(n, x.data(), y.data());
      for (float v : x) expected.push_back(bf16_from_float(v));
      CHECK(y == expected);
      from_bf16(n, y.data(), back.data());
      check_pointwise(n, back, [&](size_t i) { return bf16_to_float(y[i]); });
    }
  });
}

TEST_CASE("unary functions are within 3 ulp of doubles and the same bits on every ISA") {
  const std::vector<double (*)(double)> exact{
      [](double x) { return x > 0 ? x : 0.0; },
      [](double x) { return std::min(1.0, std::max(-1.0, x)); },
      [](double x) { return std::tanh(x); },
      [](double x) { return 1 / (1 + std::exp(-x)); },
      [](double x) { return x / (1 + std::exp(-x)); },
      [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); },
      [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); },
      [](double x) { return x > 0 ? x * x : 0.0; },
  };
  REQUIRE(exact.size() == static_cast<size_t>(UnaryOp::kCount));
  const std::vector<float> x = numbers(20001, 4), gy = numbers(20001, 5);
  const int64_t n = 20001;
  for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op) {
    std::vector<float> first, first_gradient;
    test::everywhere([&] {
      INFO(unary_name(static_cast<UnaryOp>(op)));
      std::vector<float> y(x.size()), gx(x.size());
      unary_forward(static_cast<UnaryOp>(op), n, x.data(), y.data());
      unary_backward(static_cast<UnaryOp>(op), n, x.data(), gy.data(), gx.data());
      if (first.empty()) {
        double worst = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double e = exact[static_cast<size_t>(op)](x[i]);
          const float near = static_cast<float>(std::abs(e));
          const double ulp = std::max<double>(std::nextafter(near, kInf) - near, 1e-45);
          if (std::abs(x[i]) < 80) worst = std::max(worst, std::abs(static_cast<double>(y[i]) - e) / ulp);
        }
        CHECK(worst <= 3.0);
        first = y;
        first_gradient = gx;
      }
      CHECK(differing(y, first) == 0);
      CHECK(differing(gx, first_gradient) == 0);
    });
  }
}

TEST_CASE("unary functions of bf16 are those of fp32 rounded once, forward and backward") {
  test::everywhere([] {
    for (int64_t n : kSizes) {
      const std::vector<float> drawn = numbers(n, 4, true), gy = numbers(n, 5);
      std::vector<uint16_t> x(static_cast<size_t>(n)), y(x.size()), expected(x.size());
      std::vector<float> wide(x.size()), gx(x.size()), expected_gx(x.size());
      to_bf16(n, drawn.data(), x.data());
      from_bf16(n, x.data(), wide.data());
      for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op) {
        INFO(unary_name(static_cast<UnaryOp>(op)));
        const FloatsIn narrow(x.data(), dtypes::bf16);
        unary_forward(static_cast<UnaryOp>(op), n, narrow, {y.data(), dtypes::bf16});
        unary_backward(static_cast<UnaryOp>(op), n, narrow, gy.data(), gx.data());
        std::vector<float> f(x.size());
        unary_forward(static_cast<UnaryOp>(op), n, wide.data(), f.data());
        unary_backward(static_cast<UnaryOp>(op), n, wide.data(), gy.data(), expected_gx.data());
        for (size_t i = 0; i < f.size(); ++i) expected[i] = bf16_from_float(f[i]);
        int64_t wrong = 0;
        for (size_t i = 0; i < f.size(); ++i)
          wrong += y[i] != expected[i] && !(std::isnan(bf16_to_float(y[i])) && std::isnan(f[i]));
        CHECK(wrong == 0);
        CHECK(differing(gx, expected_gx) == 0);
      }
    }
  });
}

// [cpu]: doubles
TEST_CASE("unary derivatives agree with central differences in doubles, and floats follow doubles", "[cpu]") {
  for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op) {
    INFO(unary_name(static_cast<UnaryOp>(op)));
    for (double x : {-3.1, -0.99, -0.2, 0.3, 0.7, 1.4, 2.2}) {
      const double points[2] = {x - 1e-6, x + 1e-6}, gy = 1.7;
      double y[2], gx = 0;
      unary_forward(static_cast<UnaryOp>(op), 2, {points, dtypes::fp64}, {y, dtypes::fp64});
      unary_backward(static_cast<UnaryOp>(op), 1, {&x, dtypes::fp64}, {&gy, dtypes::fp64}, {&gx, dtypes::fp64});
      CHECK(std::abs(gx - gy * (y[1] - y[0]) / 2e-6) < 1e-6);
      const float xf = static_cast<float>(x), gf = static_cast<float>(gy);
      float gxf = 0;
      unary_backward(static_cast<UnaryOp>(op), 1, &xf, &gf, &gxf);
      CHECK(std::abs(gx - static_cast<double>(gxf)) < 1e-5);
    }
  }
  const float edges[4] = {-1.0f, 1.0f, 0.0f, -0.0f}, ones[4] = {1, 1, 1, 1};
  float gx[4];
  unary_backward(UnaryOp::hardtanh, 4, edges, ones, gx);
  CHECK((gx[0] == 1.0f && gx[1] == 1.0f));
  unary_backward(UnaryOp::relu, 4, edges, ones, gx);
  CHECK((gx[2] == 0.0f && gx[3] == 0.0f));
  CHECK(unary_name(UnaryOp::hardtanh) == "hardtanh");
}

TEST_CASE("apply_mask passes g times s where the bit is one and plus zero elsewhere") {
  test::everywhere([] {
    for (int64_t cols : kSizes) {
      const int64_t rows = cols > 1000 ? 2 : 3, words = (cols + 63) / 64;
      const std::vector<float> g = numbers(rows * cols, 6, true);
      std::mt19937_64 random(7);
      std::vector<uint64_t> mask(static_cast<size_t>(rows * words));
      for (uint64_t& w : mask) w = random();
      for (float s : {1.0f, 1.25f}) {
        std::vector<float> gx(g.size(), 9.0f);
        apply_mask({rows, cols, g.data(), mask.data(), s, gx.data()});
        check_pointwise(rows * cols, gx, [&](size_t i) {
          const int64_t r = static_cast<int64_t>(i) / cols, c = static_cast<int64_t>(i) % cols;
          return (mask[static_cast<size_t>(r * words + c / 64)] >> (c % 64)) & 1 ? g[i] * s : 0.0f;
        });
      }
    }
  });
}

TEST_CASE("keep_mask keeps where the 16-bit draw reaches the threshold, with zero pads") {
  const RandomStream stream{123456789012345ull, Purpose::kDropout, 77, 5};
  test::everywhere([&] {
    for (int64_t cols : kSizes) {
      for (uint32_t threshold : {0u, 1u, 13107u, 32768u, 65535u, 65536u}) {
        const int64_t rows = cols > 1000 ? 1 : 3, words = (cols + 63) / 64, first = 1000003;
        std::vector<uint64_t> mask(static_cast<size_t>(rows * words + 1), 0x7777777777777777ull),
            expected(mask.size(), 0);
        keep_mask({rows, cols, &stream, first, threshold, mask.data()});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const uint64_t keep = stream.bits16(static_cast<uint64_t>(first + r * cols + c)) >= threshold;
            expected[static_cast<size_t>(r * words + c / 64)] |= keep << (c % 64);
          }
        }
        expected.back() = 0x7777777777777777ull;
        CHECK(mask == expected);
      }
    }
  });
}

TEST_CASE("drop_codes puts the zero code where the mask drops, for every dtype, and turns bint1 into ternary") {
  test::everywhere([] {
    for (DType from : all_dtypes()) {
      if (!from.is_code()) continue;
      for (int64_t cols : {0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 130, 1030, 16384 + 65}) {
        if (cols > 2000 && from.bits() > 3) continue;
        for (bool ternary : {false, true}) {
          if (ternary && from != dtypes::bint1) continue;
          const DType to = ternary ? dtypes::ternary : from;
          const DTypeInfo& info = to.info();
          std::mt19937_64 random(static_cast<uint64_t>(cols) + from.id());
          const int64_t rows = 3, in_stride = row_bytes_memory(from, cols), out_stride = row_bytes_memory(to, cols) + 8,
                        words = (cols + 63) / 64;
          std::vector<uint8_t> in(static_cast<size_t>(rows * in_stride)),
              out(static_cast<size_t>(rows * out_stride + 1), 0xA5);
          for (auto& b : in) b = static_cast<uint8_t>(random());  // pads too
          std::vector<uint64_t> mask(static_cast<size_t>(rows * words));
          for (auto& w : mask) w = random();
          const bool numbered = info.kind != DTypeKind::kCodebook && !ternary && info.kind != DTypeKind::kSign;
          const int32_t zeros[3] = {1, 0, static_cast<int32_t>(info.qmax)};
          drop_codes({rows, cols, from, to, in.data(), in_stride, mask.data(), numbered ? zeros : nullptr, 1,
                      out.data(), out_stride});
          int64_t wrong = 0;
          for (int64_t r = 0; r < rows; ++r) {
            const uint8_t *from_row = in.data() + r * in_stride, *row = out.data() + r * out_stride;
            for (int64_t c = 0; c < cols; ++c) {
              const uint32_t code = load_raw(from_row, c, from.bits());
              uint32_t zero = numbered ? static_cast<uint32_t>(zeros[r]) & ((1u << to.bits()) - 1u) : 0;
              if (info.kind == DTypeKind::kSign) zero = 1;  // number 0 counts as +1
              if (to == dtypes::nf4) zero = 7;
              const bool keep = (mask[static_cast<size_t>(r * words + c / 64)] >> (c % 64)) & 1;
              const uint32_t kept = ternary ? (code == 1 ? 1u : 3u) : code;
              wrong += load_raw(row, c, to.bits()) != (keep ? kept : zero);
            }
            for (int64_t b = cols * to.bits(); b < row_bytes_memory(to, cols) * 8; ++b)
              wrong += (row[b / 8] >> (b % 8)) & 1;
            for (int64_t b = row_bytes_memory(to, cols); b < out_stride; ++b) wrong += row[b] != 0xA5;
          }
          INFO(from.name() << " to " << to.name() << " cols " << cols);
          CHECK(wrong == 0);
          CHECK(out.back() == 0xA5);
        }
      }
    }
  });
  const std::string error = test::error_of([] {
    drop_codes({1, 8, dtypes::int4, dtypes::int8, nullptr, 8, nullptr, nullptr, 0, nullptr, 8});
  });
  CHECK(test::contains(error, "int4"));
  CHECK(test::contains(error, "int8"));
}

TEST_CASE("normalize and its backward round every operation once, by column and for the whole tensor") {
  test::everywhere([] {
    for (int64_t cols : kSizes) {
      const int64_t rows = cols > 1000 ? 2 : 3;
      const std::vector<float> x = numbers(rows * cols, 8), gy = numbers(rows * cols, 9);
      const std::vector<float> mean = numbers(cols + 1, 10), inv = numbers(cols + 1, 11), gamma = numbers(cols + 1, 12),
                               beta = numbers(cols + 1, 13), mg = numbers(cols + 1, 14), mgx = numbers(cols + 1, 15);
      for (int64_t step : {1, 0}) {
        const auto at = [&](size_t i) { return static_cast<size_t>(step * (static_cast<int64_t>(i) % cols)); };
        std::vector<float> y(x.size(), -1.0f), gx(x.size());
        const auto hat = [&](size_t i) { return (x[i] - mean[at(i)]) * inv[at(i)]; };
        normalize({rows, cols, x.data(), mean.data(), inv.data(), gamma.data(), beta.data(), step, y.data()});
        check_pointwise(rows * cols, y, [&](size_t i) { return hat(i) * gamma[at(i)] + beta[at(i)]; });
        normalize_backward({rows, cols, x.data(), gy.data(), mean.data(), inv.data(), gamma.data(), mg.data(),
                            mgx.data(), step, gx.data()});
        check_pointwise(rows * cols, gx, [&](size_t i) {
          const float product = hat(i) * mgx[at(i)], factor = gamma[at(i)] * inv[at(i)];
          return ((gy[i] - mg[at(i)]) - product) * factor;
        });
      }
    }
  });
}

TEST_CASE("sgd follows its written order with and without momentum, Nesterov and decay") {
  test::everywhere([] {
    for (int64_t n : kSizes) {
      for (int form = 0; form < 6; ++form) {
        const bool momentum = form % 3 != 0, nesterov = form % 3 == 2;
        const float lr = 0.1f, mu = 0.9f, decay = form >= 3 ? 0.01f : 0.0f;
        const std::vector<float> w = numbers(n, 16), g = numbers(n, 17), b = numbers(n, 18);
        std::vector<float> new_w = w, new_b = b;
        sgd_update({n, new_w.data(), g.data(), momentum ? new_b.data() : nullptr, lr, mu, decay, nesterov});
        std::vector<float> expected_b;
        check_pointwise(n, new_w, [&](size_t i) {
          float grad = g[i];
          if (form >= 3) grad += decay * w[i];
          float step = grad;
          if (momentum) {
            const float moved = mu * b[i];
            expected_b.push_back(moved + grad);
            const float ahead = mu * expected_b.back();
            step = nesterov ? grad + ahead : expected_b.back();
          }
          const float move = lr * step;
          return w[i] - move;
        });
        CHECK(differing(new_b, momentum ? expected_b : b) == 0);
      }
    }
  });
}

TEST_CASE("adam follows its written order for plain, coupled and decoupled decay, with and without correction") {
  test::everywhere([] {
    for (int64_t n : kSizes) {
      for (int form = 0; form < 12; ++form) {
        AdamArgs args;
        args.lr = 0.02f;
        args.c1 = form % 2 == 0 ? 0.271f : 1.0f;
        args.c2 = form / 2 % 2 == 0 ? 0.0029970f : 1.0f;
        args.weight_decay = form / 4 == 0 ? 0.0f : 0.1f;
        args.decoupled = form / 4 == 2;
        const std::vector<float> w = numbers(n, 19), g = numbers(n, 20), m = numbers(n, 21);
        std::vector<float> v = numbers(n, 22);
        for (float& x : v) x = std::abs(x);
        std::vector<float> nw = w, nm = m, nv = v, em, ev;
        args.n = n;
        args.w = nw.data();
        args.m = nm.data();
        args.v = nv.data();
        args.g = g.data();
        adam_update(args);
        const float shrink = 0.02f * 0.1f;
        check_pointwise(n, nw, [&](size_t i) {
          float weight = w[i], grad = g[i];
          if (form / 4 == 1) grad = grad + 0.1f * weight;
          if (form / 4 == 2) weight = weight - shrink * weight;
          const float rise = grad - m[i], step = 0.1f * rise, square = grad * grad, rise2 = square - v[i],
                      step2 = 0.001f * rise2;
          em.push_back(m[i] + step);
          ev.push_back(v[i] + step2);
          const float corrected = em.back() / args.c1, spread = std::sqrt(ev.back() / args.c2),
                      ratio = corrected / (spread + 1e-8f);
          const float move = 0.02f * ratio;
          return weight - move;
        });
        CHECK(differing(nm, em) == 0);
        CHECK(differing(nv, ev) == 0);
      }
    }
  });
}

}  // namespace bitgrad
