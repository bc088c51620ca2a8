// Moments in 8 and 4 bits, stochastic bf16 and Bop: formulas spelled out here, on every ISA, for any number of threads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/draw_codes.h"
#include "support/everywhere.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

const RandomStream kDraws{7, Purpose::kMoment, 0x1234, 5};
constexpr float kInf = std::numeric_limits<float>::infinity();

// Blocks of every kind: ordinary, all zero, one large, tiny, subnormal.
std::vector<float> numbers(int64_t n, bool positive) {
  const RandomStream draws{3, Purpose::kUser, 1, 0};
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const float u = draws.uniform(i) * 2 - 1;
    const size_t block = i / 256 % 5;
    x[i] = block == 0   ? u
           : block == 1 ? 0.0f
           : block == 2 ? (i % 256 == 17 ? 1e30f : u)
           : block == 3 ? u * 1e-30f
                        : u * 1e-42f;
    if (positive) x[i] = std::fabs(x[i]);
  }
  return x;
}

constexpr int64_t kSizes[] = {0, 1, 255, 256, 257, 1024, 1300, 40000};

// What is stored of numbers, and what is read of it.
struct Kept {
  std::vector<uint8_t> bytes;
  std::vector<float> scales, back;
};

Kept keep(const std::vector<float>& x, int bits, MomentValues values, const RandomStream& draws, uint64_t first) {
  const auto n = static_cast<int64_t>(x.size());
  Kept k{std::vector<uint8_t>((x.size() * static_cast<size_t>(bits) + 7) / 8, 99),
         std::vector<float>((x.size() + 255) / 256), std::vector<float>(x.size())};
  const MomentCodes q{bits, values, k.bytes.data(), k.scales.data()};
  narrow_moments(n, x.data(), draws, first, q);
  widen_moments(n, q, k.back.data());
  return k;
}

// body(bits, square, form) for each kind of codes.
template <typename Body>
void for_forms(Body&& body) {
  for (const int bits : {8, 4})
    for (const MomentValues values : {MomentValues::kMeans, MomentValues::kMatrix, MomentValues::kSquares}) {
      INFO(bits << " bits, values " << static_cast<int>(values));
      body(bits, values, moment_form(bits, values));
    }
}

// How much of k is not what the formulas of docs/numerics.md section 6 say of x.
int64_t count_wrong(const Kept& k, const std::vector<float>& x, int bits, MomentValues values, uint64_t first) {
  const MomentForm form = moment_form(bits, values);
  const bool square = values == MomentValues::kSquares;
  int64_t wrong = 0;
  for (size_t b = 0; b < k.scales.size(); ++b) {
    const size_t end = std::min(b * 256 + 256, x.size());
    const auto size = [&](size_t i) { return square ? std::sqrt(x[i]) : std::fabs(x[i]); };
    float top = 0;
    for (size_t i = b * 256; i < end; ++i) top = std::max(top, size(i));
    const float s = std::max(top / static_cast<float>(moment_number(form.most, form)), 0x1p-126f), inverse = 1.0f / s;
    wrong += k.scales[b] != s;
    for (size_t i = b * 256; i < end; ++i) {
      const int drawn = moment_code(size(i) * inverse, form, moment_draw(kDraws, first + i));
      const int code = square && x[i] > 0 ? std::max(drawn, 1) : drawn;
      wrong += moment_stored(k.bytes.data(), i, bits, values) != (x[i] < 0 ? -code : code);
      const float y = s * static_cast<float>(moment_number(code, form));
      wrong += k.back[i] != (square ? y * y : x[i] < 0 ? -y : y);
      wrong += square && (x[i] > 0) != (k.back[i] > 0) && s > 1e-18f;
    }
  }
  if (bits == 4 && x.size() % 2 == 1) wrong += k.bytes.back() >> 4;  // no code
  return wrong;
}

}  // namespace

TEST_CASE("moments in 8 and 4 bits have a scale a block and are rounded by the draws of their elements") {
  test::everywhere([] {
    for_forms([](int bits, MomentValues values, const MomentForm&) {
      for (const int64_t n : kSizes) {
        const std::vector<float> x = numbers(n, values == MomentValues::kSquares);
        const uint64_t first = values == MomentValues::kSquares ? 0 : (uint64_t{1} << 40) + 512;
        CHECK(count_wrong(keep(x, bits, values, kDraws, first), x, bits, values, first) == 0);
      }
    });
  });
}

TEST_CASE("a million moments have the same codes on every ISA") {
  constexpr size_t kCount = 1 << 20;
  std::vector<float> x(kCount), squares(kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = kDraws.uniform(i) - 0.5f;
    squares[i] = x[i] * x[i];
  }
  for_forms([&](int bits, MomentValues values, const MomentForm&) {
    const auto code = [&] { return keep(values == MomentValues::kSquares ? squares : x, bits, values, kDraws, 0); };
    const test::RestoreCpu restore;
    set_isa_cap(IsaLevel::kScalar);
    Kept plain;
    test::on_cpu([&] { plain = code(); });
    for (const IsaLevel level : test::isa_levels()) {
      set_isa_cap(level);
      const Kept got = code();
      CHECK((got.bytes == plain.bytes));  // one truth value: a million numbers are not printed
      CHECK((got.back == plain.back));
    }
  });
}

TEST_CASE("the number of a code keeps that code for every draw, and one between two codes is rounded by its draw") {
  test::everywhere([] {
    for_forms([](int bits, MomentValues values, const MomentForm& form) {
      const bool square = values == MomentValues::kSquares;
      // The largest number makes the scale 1/4.
      const auto stored = [&](double u) { return static_cast<float>(square ? u * u / 16 : -u / 4); };
      std::vector<float> x(256, stored(moment_number(form.most, form)));
      for (int q = 0; q < form.most; ++q) x[static_cast<size_t>(q)] = stored(moment_number(q, form));
      for (const uint32_t step : {0, 1, 2, 77}) {
        const Kept k = keep(x, bits, values, {7, Purpose::kMoment, 3, step}, 9);
        CHECK(k.scales[0] == 0.25f);
        CHECK(k.back == x);
      }
      const int q = form.most / 2;
      const double between = (moment_number(q, form) + moment_number(q + 1, form)) / 2;
      std::fill(x.begin(), x.end() - 1, stored(between));
      const Kept k = keep(x, bits, values, kDraws, 0);
      for (size_t i = 0; i < 255; ++i)
        CHECK(std::abs(moment_stored(k.bytes.data(), i, bits, values)) == q + (moment_draw(kDraws, i) >= 32768));
    });
  });
}

TEST_CASE("codes of moments keep their relative precision: in 8 bits over five decades, in 4 bits over two") {
  for_forms([](int, MomentValues, const MomentForm& form) {
    const int parts = 1 << form.b;
    for (int q = 0; q <= form.most; ++q) {
      const double gap = moment_number(q + 1, form) - moment_number(q, form);
      CHECK(gap == std::exp2(q / parts - form.b));
      if (q >= parts) CHECK(gap <= moment_number(q, form) * 2 / parts);
    }
  });
  const auto range = [](int bits, MomentValues values) {
    const MomentForm form = moment_form(bits, values);
    return std::pair{moment_number(form.most, form), moment_number(1, form) / moment_number(form.most, form)};
  };
  CHECK(range(8, MomentValues::kMeans).first == 61439);
  CHECK(range(8, MomentValues::kSquares).first == 63487);
  CHECK(range(4, MomentValues::kMeans).first == 127);
  CHECK(range(4, MomentValues::kSquares).first == 191);
  CHECK(range(8, MomentValues::kMatrix).first == 14.75);
  CHECK(range(4, MomentValues::kMatrix).first == 11);
  CHECK(range(8, MomentValues::kMeans).second < 2.1e-6);
  CHECK(range(8, MomentValues::kSquares).second < 1e-6);
  CHECK(range(4, MomentValues::kMeans).second < 8e-3);
  CHECK(range(4, MomentValues::kSquares).second < 2.7e-3);
}

TEST_CASE("rounding moments is unbiased, for numbers of any part of the largest") {
  for (const int bits : {8, 4}) {
    const MomentForm form = moment_form(bits, MomentValues::kMeans);
    for (const float part : {0.3f, 1e-3f, 1e-5f, 1e-6f}) {
      std::vector<float> x(256, -part);
      x[0] = 1;
      double mean = 0;
      for (uint32_t step = 0; step < 2000; ++step) {
        const Kept k = keep(x, bits, MomentValues::kMeans, {7, Purpose::kMoment, 1, step}, 0);
        CHECK(std::fabs(k.back[0] - 1) < 1e-6f);
        for (size_t i = 1; i < 256; ++i) mean += static_cast<double>(k.back[i]) / (2000 * 255);
      }
      // About that of the codes around it.
      const double gap = (static_cast<double>(part) + 1 / moment_number(form.most, form)) / (1 << form.b);
      CHECK(std::fabs(mean + static_cast<double>(part)) < 5 * gap / 2 / std::sqrt(2000.0 * 255));
    }
  }
}

TEST_CASE("NaN and Inf in moments stay seen and change no other block") {
  test::everywhere([] {
    for_forms([](int bits, MomentValues values, const MomentForm&) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
        std::vector<float> x = numbers(768, true);
        const Kept clean = keep(x, bits, values, kDraws, 0);
        x[300] = bad;
        const Kept k = keep(x, bits, values, kDraws, 0);
        CHECK_FALSE(std::isfinite(k.back[300]));
        CHECK(k.scales[0] == clean.scales[0]);
        CHECK(k.scales[2] == clean.scales[2]);
        const auto block = static_cast<std::ptrdiff_t>(32 * bits);  // bytes
        CHECK(std::equal(k.bytes.begin(), k.bytes.begin() + block, clean.bytes.begin()));
        CHECK(std::equal(k.bytes.begin() + 2 * block, k.bytes.end(), clean.bytes.begin() + 2 * block));
      }
    });
  });
}

TEST_CASE("stochastic bf16 is bits plus draw, cut, and keeps NaN and Inf") {
  test::everywhere([] {
    for (const int64_t n : kSizes) {
      std::vector<float> x = numbers(n, false);
      if (n > 10) {
        x[3] = kInf;
        x[4] = -kInf;
        x[5] = std::bit_cast<float>(0x7F800001u);
        x[6] = -0.0f;
        x[7] = std::bit_cast<float>(0x7F7FFFFFu);
      }
      std::vector<uint16_t> y(x.size());
      for (const uint64_t first : {1001, 1002, 1007}) {  // eight draws lie together: by one, by two, by all distances
        to_bf16_stochastic(n, x.data(), kDraws, static_cast<int64_t>(first), y.data());
        int64_t wrong = 0;
        for (size_t i = 0; i < x.size(); ++i)
          wrong += y[i] != bf16_from_float_stochastic(x[i], kDraws.bits16(first + i));
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("bop moves the average and flips signs that it has outgrown") {
  test::everywhere([] {
    for (const int64_t n : kSizes) {
      const std::vector<float> g = numbers(n, false);
      std::vector<float> m(g.size()), w(g.size()), m0, w0;
      for (size_t i = 0; i < m.size(); ++i) {
        m[i] = static_cast<float>(static_cast<int>(i % 9) - 4) * 0.01f;
        w[i] = i % 3 == 0 ? 1.0f : -1.0f;
      }
      m0 = m;
      w0 = w;
      BopArgs args;
      args.n = n;
      args.w = w.data();
      args.m = m.data();
      args.g = g.data();
      args.gamma = 0.125f;
      args.threshold = 0.02f;
      bop_update(args);
      int64_t wrong = 0;
      for (size_t i = 0; i < m.size(); ++i) {
        const float rise = g[i] - m0[i], added = 0.125f * rise, mean = m0[i] + added;
        const bool flip = std::fabs(mean) > 0.02f && (mean > 0) == (w0[i] > 0);
        wrong += m[i] != mean;
        wrong += w[i] != (flip ? -w0[i] : w0[i]);
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("the average of bop forgets at the rate gamma, however small, and a gamma of 1 remembers nothing") {
  test::everywhere([] {
    const uint64_t steps = test::runs_on_device() ? 2000 : 100000;  // each is a launch
    for (const float gamma : {1e-4f, 1e-6f}) {
      constexpr size_t kCount = 19;
      std::vector<float> m(kCount), w(kCount, 1.0f), g(kCount);
      std::vector<double> exact(kCount);
      for (uint64_t t = 0; t < steps; ++t) {
        for (size_t i = 0; i < kCount; ++i) g[i] = 1.0f + static_cast<float>((t * 7 + i * 13) % 11) * 0.125f;
        bop_update({static_cast<int64_t>(kCount), w.data(), m.data(), g.data(), gamma, 1e30f});
        for (size_t i = 0; i < kCount; ++i)
          exact[i] += static_cast<double>(gamma) * (static_cast<double>(g[i]) - exact[i]);
      }
      for (size_t i = 0; i < kCount; ++i) CHECK(std::fabs(static_cast<double>(m[i]) / exact[i] - 1) < 1e-4);
    }
    std::vector<float> m(9, 1e20f), w(9, 1.0f), g(9, 3.0f);
    bop_update({9, w.data(), m.data(), g.data(), 1.0f, 1e30f});
    CHECK(m == g);
  });
}
