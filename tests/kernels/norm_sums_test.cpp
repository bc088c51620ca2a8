// The sums of a normalisation's backward against the order of docs/numerics.md section 8, spelled out here.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;
namespace {

float ordered_sum(const std::vector<float>& v) {
  std::vector<float> level;
  for (size_t chunk = 0; chunk < v.size(); chunk += 1024) {
    float lane[16] = {};
    for (size_t i = chunk; i < v.size() && i < chunk + 1024; ++i) lane[(i - chunk) % 16] += v[i];
    for (size_t half = 8; half >= 1; half /= 2)
      for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    level.push_back(lane[0]);
  }
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level.empty() ? 0.0f : level[0];
}

struct Problem {
  int64_t rows, cols, step;
  std::vector<float> gy, x, mean, inv, gamma, beta;  // gamma: empty unless gy counts by rule clip

  Problem(int64_t r, int64_t c, int64_t column_step) : rows(r), cols(c), step(column_step) {
    std::mt19937 random(static_cast<unsigned>(r * 31 + c));
    std::normal_distribution<float> normal;
    for (std::vector<float>* v : {&gy, &x})
      for (int64_t i = 0; i < rows * cols; ++i) v->push_back(normal(random));
    for (std::vector<float>* v : {&mean, &inv})
      for (int64_t i = 0; i < groups(); ++i) v->push_back(normal(random));
  }
  int64_t groups() const { return step == 1 ? cols : 1; }
  void clip() {
    for (int64_t i = 0; i < groups(); ++i) {
      gamma.push_back(0.25f + 0.5f * static_cast<float>(i % 3));
      beta.push_back(0.125f * static_cast<float>(i % 5) - 0.25f);
    }
    for (size_t i = 0; i < x.size(); i += 7) x[i] = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : 1e30f;
  }

  std::vector<float> run() const {
    std::vector<float> out(static_cast<size_t>(2 * groups()), -1.0f);
    NormSumsArgs args{
        rows, cols, gy.data(), x.data(), mean.data(), inv.data(), step, out.data(), out.data() + groups()};
    if (!gamma.empty()) {
      args.clip_gamma = gamma.data();
      args.clip_beta = beta.data();
    }
    norm_sums(args);
    return out;
  }
  std::vector<float> expected() const {
    std::vector<float> out;
    for (const bool times : {false, true})
      for (int64_t j = 0; j < groups(); ++j) {
        std::vector<float> terms;
        for (int64_t i = 0; i < rows * cols; ++i) {
          if (step == 1 && i % cols != j) continue;
          const auto at = static_cast<size_t>(i), group = static_cast<size_t>(j);
          const float xhat = (x[at] - mean[group]) * inv[group];
          const float y = gamma.empty() ? 0.0f : xhat * gamma[group] + beta[group];
          const float g = y >= -1.0f && y <= 1.0f ? gy[at] : 0.0f;
          terms.push_back(times ? g * xhat : g);
        }
        out.push_back(ordered_sum(terms));
      }
    return out;
  }
};

}  // namespace

TEST_CASE("norm_sums adds gy and gy times xhat in the one order, by column and over all, on every ISA") {
  const test::RestoreCpu restore;
  const int64_t shapes[][2] = {{1, 1},    {1, 5},    {5, 1},    {15, 63},  {16, 64}, {17, 65},
                               {100, 10}, {1023, 2}, {1025, 3}, {2500, 4}, {0, 3},   {3, 3000}};
  for (const IsaLevel level : test::isa_levels({IsaLevel::kScalar, IsaLevel::kAvx2, restore.level})) {
    set_isa_cap(level);
    for (const auto& shape : shapes)
      for (const int64_t step : {1, 0}) {
        INFO(shape[0] << " x " << shape[1] << ", column step " << step);
        const Problem p(shape[0], shape[1], step);
        CHECK(p.run() == p.expected());
      }
  }
}

TEST_CASE("norm_sums of columns in whole vectors, and by rule clip, on every ISA") {
  const test::RestoreCpu restore;
  const int64_t shapes[][2] = {{1, 16},  {33, 16}, {1030, 16}, {15, 32}, {1025, 32}, {50, 48},
                               {17, 64}, {40, 80}, {1027, 64}, {29, 96}, {2050, 128}};
  for (const IsaLevel level : test::isa_levels({IsaLevel::kScalar, IsaLevel::kAvx2, restore.level})) {
    set_isa_cap(level);
    for (const auto& shape : shapes)
      for (const bool clip : {false, true}) {
        INFO(shape[0] << " x " << shape[1] << ", clip " << clip);
        Problem p(shape[0], shape[1], 1);
        if (clip) p.clip();
        if (clip && test::runs_on_device()) {
          CHECK(test::contains(test::error_of([&] { p.run(); }), "[norm_sums] the clip rule has no kernel on cuda:0"));
          continue;
        }
        const std::vector<float> sums = p.run(), expected = p.expected();
        for (size_t i = 0; i < sums.size(); ++i) {
          const bool nan = std::isnan(expected[i]);
          CHECK((nan ? std::isnan(sums[i]) : sums[i] == expected[i]));
        }
      }
  }
}

TEST_CASE("norm_sums of masked gradients has the bits of times_bits and norm_sums, in place or not, on every ISA") {
  const test::RestoreCpu restore;
  const int64_t shapes[][2] = {{1, 16},  {33, 16}, {1032, 16}, {15, 32}, {1026, 32},
                               {50, 48}, {17, 64}, {1027, 64}, {9, 5}};
  for (const IsaLevel level : test::isa_levels({IsaLevel::kScalar, IsaLevel::kAvx2, restore.level})) {
    set_isa_cap(level);
    for (const auto& shape : shapes) {
      INFO(shape[0] << " x " << shape[1]);
      Problem p(shape[0], shape[1], 1);
      std::vector<uint64_t> bits(p.gy.size() / 64 + 1);
      std::mt19937_64 random(3);
      for (uint64_t& word : bits) word = random();
      std::vector<float> masked(p.gy.size() + 1, 5.0f), sums(static_cast<size_t>(2 * p.cols));
      const auto run = [&](const float* gy, float* to) {
        cpu::norm_sums_of_bits(
            {p.rows, p.cols, gy, p.x.data(), p.mean.data(), p.inv.data(), 1, sums.data(), sums.data() + p.cols},
            bits.data(), to);
      };
      run(p.gy.data(), masked.data());
      CHECK(masked.back() == 5.0f);
      masked.pop_back();
      std::vector<float> expected = p.gy;
      for (size_t i = 0; i < expected.size(); ++i) expected[i] *= (bits[i / 64] >> (i % 64) & 1) != 0 ? 1.0f : 0.0f;
      CHECK(std::memcmp(masked.data(), expected.data(), masked.size() * sizeof(float)) == 0);
      const std::vector<float> apart = sums;
      std::vector<float> here = p.gy;
      run(here.data(), here.data());
      CHECK(std::memcmp(here.data(), expected.data(), here.size() * sizeof(float)) == 0);
      p.gy = expected;
      CHECK(apart == p.expected());
      CHECK(sums == apart);
    }
  }
}

TEST_CASE("norm_sums has the same bits for 1, 2 and 4 threads") {
  const test::RestoreCpu restore;
  for (const int64_t step : {1, 0}) {
    const Problem p(700, 333, step);
    set_num_threads(1);
    const std::vector<float> once = p.run();
    for (const int threads : {2, 4}) {
      set_num_threads(threads);
      CHECK(p.run() == once);
    }
  }
}

}  // namespace bitgrad
