// Moments in 8 bits, stochastic bf16 and Bop: formulas spelled out here, on every ISA, for any number of threads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
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

}  // namespace

TEST_CASE("means in 8 bits have a scale a block and are rounded by the draws of their elements") {
  test::everywhere([] {
    for (const int64_t n : kSizes) {
      const std::vector<float> x = numbers(n, false);
      const uint64_t first = (uint64_t{1} << 40) + 512;
      std::vector<int8_t> q(x.size(), 99);
      std::vector<float> scales((x.size() + 255) / 256), back(x.size());
      moments_to_int8(n, x.data(), kDraws, first, q.data(), scales.data());
      moments_from_int8(n, q.data(), scales.data(), back.data());
      int64_t wrong = 0;
      for (size_t b = 0; b < scales.size(); ++b) {
        float top = 0;
        for (size_t i = b * 256; i < std::min(b * 256 + 256, x.size()); ++i) top = std::max(top, std::fabs(x[i]));
        const float s = std::max(top / 61439.0f, 0x1p-126f), inverse = 1.0f / s;
        wrong += scales[b] != s;
        for (size_t i = b * 256; i < std::min(b * 256 + 256, x.size()); ++i) {
          const int code = moment_code(std::fabs(x[i]) * inverse, 3, moment_draw(kDraws, first + i));
          wrong += q[i] != (x[i] < 0 ? -code : code);
          wrong += back[i] != std::copysign(s * static_cast<float>(moment_number(code, 3)), static_cast<float>(q[i]));
        }
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("squares in 8 bits hold the root, and keep a code of 1 where they are not 0") {
  test::everywhere([] {
    for (const int64_t n : kSizes) {
      const std::vector<float> x = numbers(n, true);
      std::vector<uint8_t> q(x.size(), 99);
      std::vector<float> scales((x.size() + 255) / 256), back(x.size());
      squares_to_uint8(n, x.data(), kDraws, 0, q.data(), scales.data());
      squares_from_uint8(n, q.data(), scales.data(), back.data());
      int64_t wrong = 0;
      for (size_t b = 0; b < scales.size(); ++b) {
        float top = 0;
        for (size_t i = b * 256; i < std::min(b * 256 + 256, x.size()); ++i) top = std::max(top, std::sqrt(x[i]));
        const float s = std::max(top / 63487.0f, 0x1p-126f), inverse = 1.0f / s;
        wrong += scales[b] != s;
        for (size_t i = b * 256; i < std::min(b * 256 + 256, x.size()); ++i) {
          wrong +=
              q[i] != std::max(moment_code(std::sqrt(x[i]) * inverse, 4, moment_draw(kDraws, i)), x[i] > 0 ? 1 : 0);
          const float root = s * static_cast<float>(moment_number(q[i], 4));
          wrong += back[i] != root * root;
          wrong += (x[i] > 0) != (back[i] > 0) && s > 1e-18f;
        }
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a million moments have the same codes on every ISA") {
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> x(kCount), squares(kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = kDraws.uniform(i) - 0.5f;
    squares[i] = x[i] * x[i];
  }
  std::vector<int8_t> q(kCount);
  std::vector<uint8_t> r(kCount);
  std::vector<float> scales(kCount / 256);
  const auto code = [&] {
    moments_to_int8(kCount, x.data(), kDraws, 0, q.data(), scales.data());
    squares_to_uint8(kCount, squares.data(), kDraws, 0, r.data(), scales.data());
  };
  const test::RestoreCpu restore;
  set_isa_cap(IsaLevel::kScalar);
  test::on_cpu(code);
  const std::vector<int8_t> plain_q = q;
  const std::vector<uint8_t> plain_r = r;
  for (const IsaLevel level : test::isa_levels()) {
    set_isa_cap(level);
    code();
    CHECK((q == plain_q));  // one truth value: a million numbers are not printed
    CHECK((r == plain_r));
  }
}

TEST_CASE("a mean in 8 bits keeps the relative precision of its code over five decades, and a root over six") {
  for (int q = 0; q < 256; ++q) {
    const double gap = moment_number(q + 1, 4) - moment_number(q, 4);
    CHECK(gap == std::exp2(q / 16 - 4));
    if (q >= 16) CHECK(gap <= moment_number(q, 4) / 8);
  }
  CHECK(moment_number(127, 3) == 61439);
  CHECK(moment_number(255, 4) == 63487);
  CHECK(moment_number(1, 3) / moment_number(127, 3) < 2.1e-6);
  CHECK(moment_number(1, 4) / moment_number(255, 4) < 1e-6);
}

TEST_CASE("rounding moments to 8 bits is unbiased, for numbers of any part of the largest") {
  for (const float part : {0.3f, 1e-3f, 1e-5f, 1e-6f}) {
    std::vector<float> x(256, -part), y(256);
    x[0] = 1;
    double mean = 0;
    for (uint32_t step = 0; step < 2000; ++step) {
      int8_t q[256];
      float scale;
      moments_to_int8(256, x.data(), {7, Purpose::kMoment, 1, step}, 0, q, &scale);
      moments_from_int8(256, q, &scale, y.data());
      CHECK(std::fabs(y[0] - 1) < 1e-6f);
      for (size_t i = 1; i < 256; ++i) mean += static_cast<double>(y[i]) / (2000 * 255);
    }
    const double gap = static_cast<double>(part) / 8 + 1 / (8 * 61439.0);  // about that of the codes around it
    CHECK(std::fabs(mean + static_cast<double>(part)) < 5 * gap / 2 / std::sqrt(2000.0 * 255));
  }
}

TEST_CASE("NaN and Inf in moments stay seen and change no other block") {
  test::everywhere([] {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
      std::vector<float> x = numbers(768, true);
      std::vector<int8_t> q(768), clean(768);
      std::vector<float> scales(3), clean_scales(3), back(768);
      moments_to_int8(768, x.data(), kDraws, 0, clean.data(), clean_scales.data());
      x[300] = bad;
      moments_to_int8(768, x.data(), kDraws, 0, q.data(), scales.data());
      moments_from_int8(768, q.data(), scales.data(), back.data());
      CHECK_FALSE(std::isfinite(back[300]));
      CHECK(scales[0] == clean_scales[0]);
      CHECK(scales[2] == clean_scales[2]);
      CHECK(std::equal(q.begin(), q.begin() + 256, clean.begin()));
      CHECK(std::equal(q.begin() + 512, q.end(), clean.begin() + 512));
    }
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
