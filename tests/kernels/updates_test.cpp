// Gradients finished in one sweep, and Adam's divisions and roots, against the formulas spelled out here with true
// divisions: numbers of every exponent, Inf, NaN and subnormals; equal bits on every ISA.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/everywhere.h"

using namespace bitgrad;
using namespace bitgrad::kernels;

namespace {

const RandomStream kDraws{11, Purpose::kUser, 0x77, 0};

template <typename Body>
void on_each_isa(Body&& body) {
  const IsaLevel cap = isa_cap();
  for (const IsaLevel level : test::isa_levels()) {
    set_isa_cap(level);
    INFO("isa " << static_cast<int>(level));
    body();
  }
  set_isa_cap(cap);
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Any bits: in a third each any exponent, ordinary sizes, and numbers next to powers of two or few bits long.
float any_number(uint64_t i) {
  const uint32_t bits = kDraws.bits32(2 * i), kind = kDraws.bits32(2 * i + 1);
  switch (kind % 3) {
    case 0:
      return std::bit_cast<float>(bits);
    case 1:
      return std::ldexp(static_cast<float>(static_cast<int32_t>(bits)), static_cast<int>(kind >> 8) % 40 - 50);
    default:
      return std::bit_cast<float>((bits & 0xFF800000u) | (((bits & 7u) - 4u) & 0x7FFFFFu) | ((kind >> 9) & 0x700000u));
  }
}
float any_finite(uint64_t i) {
  const float x = any_number(i);
  return std::isfinite(x) ? x : 1.5f;
}

// Divisors of steps (1 - b^t) and others whose mantissas are extreme.
std::vector<float> corrections() {
  std::vector<float> c;
  for (const double beta : {0.9, 0.95, 0.99, 0.999, 0.9999, 0.999999}) {
    double power = 1;
    for (int t = 1; t <= 200; ++t) {
      power *= beta;
      if (t < 12 || t % 37 == 0) c.push_back(static_cast<float>(1 - power));
    }
  }
  for (uint32_t k : {1u, 2u, 3u, 4u, 5u, 0x7FFFFFu, 0x3504F3u, 0x400000u, 0x555555u})
    for (const uint32_t exponent : {126u, 120u, 100u, 80u})
      c.push_back(std::bit_cast<float>((exponent << 23) | (0x800000u - k)));
  return c;
}

// lerp(old, x, a) of AdamArgs.
float average(float old, float x, float a, float b) {
  const float rise = x - old, fall = old - x;
  if (a < 0.5f) {
    const float step = a * rise;
    return old + step;
  }
  const float rest = b * fall;
  return x + rest;
}

}  // namespace

TEST_CASE("finish_gradient is division, bounds and clip in one sweep, for every number") {
  on_each_isa([] {
    for (const int64_t n : {0, 1, 7, 8, 15, 16, 17, 31, 257, 40003}) {
      for (const float divisor : {1.0f, 2.0f, 3.0f, 7.0f, 100.0f, 512.0f, 60000.0f, 16777215.0f, 0x1p28f}) {
        for (int form = 0; form < 4; ++form) {
          const bool bounds = form % 2 == 1, clip = form >= 2;
          std::vector<float> g, w, expected;
          bool finite = true;
          for (int64_t i = 0; i < n; ++i) {
            g.push_back(i % 1000 == 999 ? any_number(static_cast<uint64_t>(i)) : any_finite(static_cast<uint64_t>(i)));
            w.push_back(static_cast<float>(i % 9 - 4) * 0.375f);
            if (i % 50 == 3) w.back() = std::numeric_limits<float>::quiet_NaN();
            finite = finite && std::isfinite(g.back());
            float x = g.back() / divisor;
            if (bounds) x = w.back() >= -0.75f && w.back() <= 1.125f ? x : 0.0f;
            if (clip) x = x < -0.01f ? -0.01f : x > 0.01f ? 0.01f : x;
            expected.push_back(x);
          }
          FinishGradientArgs args;
          args.n = n;
          args.g = g.data();
          args.divisor = divisor;
          args.w = bounds ? w.data() : nullptr;
          args.lo = -0.75f;
          args.hi = 1.125f;
          args.clip_value = clip ? 0.01f : 0.0f;
          CHECK(finish_gradient(args) == finite);
          int64_t wrong = 0;
          for (size_t i = 0; i < g.size(); ++i) wrong += !same(g[i], expected[i]);
          CHECK(wrong == 0);
        }
      }
    }
  });
}

TEST_CASE("finish_gradient reports one NaN or Inf anywhere, also where the bounds drop it") {
  on_each_isa([] {
    for (const int64_t n : {1, 16, 37, 20000}) {
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
          std::vector<float> g(static_cast<size_t>(n), 0.5f), w(g.size(), 2.0f);
          FinishGradientArgs args;
          args.n = n;
          args.g = g.data();
          args.w = w.data();
          args.divisor = 3;
          const auto finite = [&] {
            const FlagWord word;
            args.flags = word.word();
            return test::found_finite(finish_gradient(args), word);
          };
          CHECK(finite());
          g[static_cast<size_t>(at)] = bad;
          CHECK_FALSE(finite());
        }
      }
    }
  });
}

TEST_CASE("division by one number gives the bits of the hardware's division") {
  constexpr int64_t kCount = 1 << 15;
  std::vector<float> x(kCount), y;
  for (size_t i = 0; i < x.size(); ++i) x[i] = any_number(i + 1000000);
  on_each_isa([&] {
    int64_t wrong = 0;
    for (uint32_t j = 0; j < 64; ++j) {
      const float divisor = j < 8    ? std::bit_cast<float>((138u << 23) | (0x800000u - 1u - j))
                            : j < 16 ? std::bit_cast<float>((128u + j) << 23)
                                     : static_cast<float>(1 + kDraws.bits32(900 + j) % (1u << (j % 27 + 1)));
      y = x;
      FinishGradientArgs args;
      args.n = kCount;
      args.g = y.data();
      args.divisor = divisor;
      finish_gradient(args);
      for (size_t i = 0; i < x.size(); ++i) wrong += !same(y[i], x[i] / divisor);
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("adam gives the bits of true divisions and roots for every number and correction") {
  constexpr size_t kCount = 4096 + 5;
  const std::vector<float> all = corrections();
  std::vector<float> g(kCount), m(kCount), v(kCount), w(kCount), nm, nv, nw;
  on_each_isa([&] {
    int64_t wrong = 0;
    for (size_t j = 0; j < all.size(); ++j) {
      for (size_t i = 0; i < kCount; ++i) {
        const uint64_t e = j * kCount * 3 + i;
        g[i] = i % 4 == 0 ? 0.0f : any_finite(e);
        m[i] = any_number(e + kCount);
        v[i] = i % 7 == 0 ? 0.0f : std::fabs(any_number(e + 2 * kCount));
        w[i] = i % 5 == 0 ? -0.0f : 0.5f;
        if (i % 11 == 0) g[i] = m[i] = w[i] = -0.0f;
      }
      nm = m;
      nv = v;
      nw = w;
      AdamArgs args;
      args.n = kCount;
      args.w = nw.data();
      args.m = nm.data();
      args.v = nv.data();
      args.g = g.data();
      args.lr = 0.02f;
      args.eps = j % 2 == 0 ? 1e-8f : 0.0f;
      args.c1 = j % 3 == 0 ? 1.0f : all[j];
      args.c2 = j % 5 == 0 ? 1.0f : all[all.size() - 1 - j];
      if (j % 7 == 1) {  // a short first average, a short second one
        args.a1 = 0.75f;
        args.b1 = 0.25f;
      } else if (j % 7 == 2) {
        args.a2 = 1.0f;
        args.b2 = 0.0f;
      }
      adam_update(args);
      for (size_t i = 0; i < kCount; ++i) {
        const float mean = average(m[i], g[i], args.a1, args.b1), spread = average(v[i], g[i] * g[i], args.a2, args.b2);
        const float ratio = (mean / args.c1) / (std::sqrt(spread / args.c2) + args.eps), move = args.lr * ratio;
        wrong += !same(nm[i], mean) + !same(nv[i], spread) + !same(nw[i], w[i] - move);
      }
    }
    CHECK(wrong == 0);
  });
}

// PyTorch's formula in double, from the same fp32 moments: what one step of the kernel adds in error. The mean may
// cancel, so errors count relative to the update that the sizes of its terms would make.
TEST_CASE(
    "one step of adam is within 3e-7 of the formula in double for every pair of betas, and exact where both are 0") {
  constexpr size_t kCount = 4099;
  const double betas[] = {0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999};
  on_each_isa([&] {
    double worst = 0;
    for (const double beta1 : betas)
      for (const double beta2 : betas) {
        std::vector<float> g(kCount), m(kCount), v(kCount), w(kCount, 0.0f), nm, nv;
        for (size_t i = 0; i < kCount; ++i) {
          const float size = std::ldexp(1.0f, static_cast<int>(kDraws.bits32(5 * i) % 60) - 30);
          g[i] = (kDraws.uniform(5 * i + 1) - 0.5f) * size;
          m[i] = (kDraws.uniform(5 * i + 2) - 0.5f) * size * std::ldexp(1.0f, static_cast<int>(i % 21) - 10);
          v[i] = kDraws.uniform(5 * i + 3) * size * size * std::ldexp(1.0f, static_cast<int>(i % 23) - 11);
        }
        nm = m;
        nv = v;
        AdamArgs args;
        args.n = kCount;
        args.w = w.data();
        args.m = nm.data();
        args.v = nv.data();
        args.g = g.data();
        args.lr = 0.0625f;
        args.eps = 0x1p-30f;
        args.a1 = static_cast<float>(1.0 - beta1);
        args.a2 = static_cast<float>(1.0 - beta2);
        args.b1 = static_cast<float>(beta1);
        args.b2 = static_cast<float>(beta2);
        adam_update(args);
        for (size_t i = 0; i < kCount; ++i) {
          const double gi = static_cast<double>(g[i]), mi = static_cast<double>(m[i]), vi = static_cast<double>(v[i]);
          const double mean = beta1 * mi + (1 - beta1) * gi, square = beta2 * vi + (1 - beta2) * gi * gi;
          const double unit = 0.0625 / (std::sqrt(square) + 0x1p-30);
          const double size = (beta1 * std::fabs(mi) + (1 - beta1) * std::fabs(gi)) * unit;
          if (size > 0) worst = std::max(worst, std::fabs(static_cast<double>(w[i]) + mean * unit) / size);
          if (beta1 == 0 && beta2 == 0) CHECK((nm[i] == g[i] && nv[i] == g[i] * g[i]));
        }
      }
    INFO(worst);
    CHECK(worst <= 3e-7);
  });
}
