// The loops of family attention against the plain order of docs/numerics.md section 10, with == on every instruction
// set.
#include "kernels/attention/loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using namespace kernels::attention_loops;

std::vector<const AttentionLoops*> tables() {
  std::vector<const AttentionLoops*> out{&loops_scalar()};
  if (cpu_isa() & isa::kAvx2) out.push_back(&loops_avx2());
  if (cpu_isa() & isa::kAvx512) out.push_back(&loops_avx512());
  return out;
}

std::vector<float> numbers(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random);
  return x;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y); });
}

// Row by row, one product and one sum at a time.
void plain(const MultiplyAdd& p) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t j = 0; j < std::min(p.cols, p.col_ends == MultiplyAdd::kNoStair ? p.cols : p.col_ends + r); ++j) {
      float sum = p.start == MultiplyAdd::Start::kZero ? 0.0f : p.y[r * p.ldy + j];
      if (p.start == MultiplyAdd::Start::kTimes) sum = sum * p.factor[r];
      const int64_t begin = std::max<int64_t>(0, r - p.begins), end = std::min(p.inner, p.ends + r);
      for (int64_t i = begin; i < end; ++i) {
        const float term = p.x[r * p.x_row + i * p.x_step] * p.t[i * p.ldt + j];
        sum = sum + term;
      }
      p.y[r * p.ldy + j] = sum;
    }
}

// The sum of 64 numbers in the order of docs/numerics.md section 10.
float in_lanes(const std::vector<float>& p) {
  float lane[16] = {};
  for (size_t j = 0; j < 64; ++j) lane[j % 16] = lane[j % 16] + p[j];
  for (size_t half = 8; half >= 1; half /= 2)
    for (size_t l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  return lane[0];
}

// A number at a time.
void plain(OnlineRow& row) {
  std::vector<float> p(64, 0.0f);
  float top = row.top;
  for (int64_t j = row.begin; j < row.count; ++j) top = std::max(top, row.scores[j] * row.scale);
  for (int64_t j = row.begin; j < row.count; ++j)
    p[static_cast<size_t>(j)] = math::exp(row.scores[j] * row.scale - top);
  row.factor = std::isinf(row.top) ? 0.0f : math::exp(row.top - top);
  row.sum = row.sum * row.factor + in_lanes(p);
  row.top = top;
  std::copy(p.begin(), p.end(), row.scores);
}

}  // namespace

// [cpu]: loops of the CPU; a device has maps (tests/ops/attention_test.cpp)
TEST_CASE("an online softmax of a block, for any visible keys of it", "[cpu]") {
  for (const AttentionLoops* loops : tables())
    for (const int64_t begin : {0, 1, 15, 16, 30, 48, 63})
      for (const int64_t count : {1, 2, 16, 17, 31, 32, 33, 49, 63, 64})
        for (const float top : {-std::numeric_limits<float>::infinity(), -1.5f, 3.0f}) {
          if (begin >= count) continue;
          INFO(begin << " to " << count << ", top " << top);
          std::vector<float> got = numbers(64, static_cast<uint32_t>(64 * begin + count)), expected = got;
          OnlineRow row{got.data(), begin, count, 0.7f, top, 2.5f}, wanted = row;
          wanted.scores = expected.data();
          loops->online_softmax(row);
          plain(wanted);
          CHECK(same(got, expected));
          CHECK(same({row.top, row.sum, row.factor}, {wanted.top, wanted.sum, wanted.factor}));
        }
}

TEST_CASE("probabilities in backward have the bits of math::exp over the whole range", "[cpu]") {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float v = -105.0f; v < 90.0f; v += 0.0007f) x.push_back(v);
  for (const float v : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 88.7228394f,
                        88.72284f, -87.33655f, -103.97208f, -103.97209f, -104.0f})
    x.push_back(v);
  // Within 64 of 2^29 parts of the middle between two floats: no fast way may decide there.
  for (const float v : {-0x1.e1dbe2p-8f, -0x1.c1c4b8p-10f, -0x1.d2259ap+3f, -0x1.548c34p-7f, -0x1.cf6ab2p-3f,
                        -0x1.7f5442p-2f, -0x1.35f0d4p-8f, -0x1.1b31eap-8f, -0x1.f9085ap+0f, -0x1.6dc968p+5f,
                        -0x1.ba156p-10f, -0x1.beccfap-3f, -0x1.4fad84p-4f})
    x.push_back(v);
  x.resize((x.size() + 63) / 64 * 64);
  for (const AttentionLoops* loops : tables()) {
    size_t wrong = 0;
    for (size_t at = 0; at < x.size(); at += 64) {
      std::vector<float> p(x.begin() + static_cast<std::ptrdiff_t>(at),
                           x.begin() + static_cast<std::ptrdiff_t>(at) + 64);
      std::vector<float> g(64, 1.0f);
      GradientRow row{p.data(), g.data(), 0, 64, 1.0f, 0.0f, 0.0f};
      loops->softmax_gradient(row);
      for (size_t j = 0; j < 64; ++j) {
        const float wanted = math::exp(x[at + j]);
        if (std::isnan(wanted) ? !std::isnan(p[j]) : std::bit_cast<uint32_t>(p[j]) != std::bit_cast<uint32_t>(wanted))
          ++wrong;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("products of attention, whole and as stairs, have the plain order", "[cpu]") {
  constexpr int64_t kNo = MultiplyAdd::kNoStair;
  const std::vector<float> x = numbers(130 * 130, 1), t = numbers(130 * 130, 2), factor = numbers(130, 3);
  for (const AttentionLoops* loops : tables())
    for (const int64_t rows : {1, 3, 7, 8, 9, 17, 64})
      for (const int64_t cols : {16, 32, 48, 80})
        for (const int64_t inner : {1, 5, 8, 33, 64})
          for (const int64_t stair : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{30}, kNo})
            for (const bool down : {false, true})
              for (const auto start :
                   {MultiplyAdd::Start::kZero, MultiplyAdd::Start::kKeep, MultiplyAdd::Start::kTimes}) {
                INFO(rows << " x " << cols << " x " << inner << ", stair " << stair << ' ' << down);
                MultiplyAdd call;
                call.rows = rows;
                call.cols = call.ldt = call.ldy = cols;
                call.inner = inner;
                call.x = x.data();
                call.x_row = down ? 1 : 130;
                call.x_step = down ? 130 : 1;
                call.t = t.data();
                call.start = start;
                call.factor = factor.data();
                if (down)
                  call.begins = stair;
                else
                  call.ends = stair == kNo ? kNo : stair + 1;
                std::vector<float> got = numbers(static_cast<size_t>(rows * cols), 4), expected = got;
                call.y = got.data();
                loops->multiply_add(call);
                call.y = expected.data();
                plain(call);
                CHECK(same(got, expected));
              }
}

TEST_CASE("products with numbers of bf16 are those with the numbers widened", "[cpu]") {
  std::vector<uint16_t> narrow;
  for (const float x : numbers(size_t{64} * 96, 2)) narrow.push_back(bf16_from_float(x));
  narrow[3] = 0x8000;  // -0
  narrow[5] = 0x7F80;  // infinity
  narrow[7] = 0x0001;  // a subnormal
  const std::vector<float> x = numbers(size_t{64} * 64, 1), factor = numbers(64, 3);
  for (const AttentionLoops* loops : tables())
    for (const int64_t count : {0, 1, 15, 16, 64 * 96}) {
      std::vector<float> t(narrow.size(), 7.0f), wide = t;
      for (int64_t i = 0; i < count; ++i) wide[static_cast<size_t>(i)] = bf16_to_float(narrow[static_cast<size_t>(i)]);
      loops->widen_bf16(count, narrow.data(), t.data());
      CHECK(same(t, wide));
      if (count < std::ssize(narrow)) continue;
      for (const int64_t rows : {1, 4, 9})
        for (const int64_t cols : {16, 48, 80}) {
          MultiplyAdd call;
          call.rows = rows;
          call.cols = call.ldy = cols;
          call.ldt = 96;
          call.inner = 33;
          call.x = x.data();
          call.x_row = 64;
          call.t = wide.data();
          call.start = MultiplyAdd::Start::kTimes;
          call.factor = factor.data();
          call.ends = 20;
          std::vector<float> got = numbers(static_cast<size_t>(rows * cols), 4), expected = got;
          call.y = expected.data();
          loops->multiply_add(call);
          call.t = nullptr;
          call.t_bf16 = narrow.data();
          call.y = got.data();
          loops->multiply_add(call);
          CHECK(same(got, expected));
        }
    }
}

TEST_CASE("scores of a stair are right in every column that a row sees", "[cpu]") {
  const std::vector<float> x = numbers(64 * 64, 5), t = numbers(64 * 64, 6);
  for (const AttentionLoops* loops : tables())
    for (const int64_t rows : {1, 8, 13, 64})
      for (const int64_t first : {1, 2, 16, 17, 40, 64}) {
        MultiplyAdd call;
        call.rows = rows;
        call.cols = call.ldt = call.ldy = 64;
        call.inner = 24;
        call.x = x.data();
        call.x_row = 64;
        call.t = t.data();
        call.col_ends = first;
        std::vector<float> got(static_cast<size_t>(rows * 64)), expected = got;
        call.y = got.data();
        loops->multiply_add(call);
        call.y = expected.data();
        plain(call);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t j = 0; j < std::min<int64_t>(64, first + r); ++j)
            CHECK(got[static_cast<size_t>(r * 64 + j)] == expected[static_cast<size_t>(r * 64 + j)]);
      }
}

TEST_CASE("columns of rows, and dots of rows, in every size", "[cpu]") {
  const std::vector<float> a = numbers(70 * 90, 7), b = numbers(70 * 95, 8);
  for (const AttentionLoops* loops : tables())
    for (const int64_t rows : {1, 4, 8, 15, 16, 17, 33, 64})
      for (const int64_t cols : {1, 3, 4, 8, 16, 20, 31, 32, 33, 64, 80}) {
        INFO(rows << " x " << cols);
        std::vector<float> y(static_cast<size_t>(cols * 64), -1.0f), expected = y, dots(static_cast<size_t>(rows)),
                                                                     d = dots;
        loops->transpose(rows, cols, a.data(), 90, y.data(), 64);
        loops->dot_rows(rows, cols, a.data(), 90, b.data(), 95, dots.data());
        for (int64_t r = 0; r < rows; ++r) {
          float sum = 0;
          for (int64_t c = 0; c < cols; ++c) {
            expected[static_cast<size_t>(c * 64 + r)] = a[static_cast<size_t>(r * 90 + c)];
            const float term = a[static_cast<size_t>(r * 90 + c)] * b[static_cast<size_t>(r * 95 + c)];
            sum = sum + term;
          }
          d[static_cast<size_t>(r)] = sum;
        }
        CHECK(same(y, expected));
        CHECK(same(dots, d));
      }
}

}  // namespace bitgrad
