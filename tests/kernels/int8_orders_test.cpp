// int8 codes by row and by column against their formula, written here element by element. docs/numerics.md section 5.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/quantize.h"
#include "support/catch.h"
#include "support/draw_codes.h"
#include "support/everywhere.h"

namespace bitgrad {

using namespace kernels;
namespace {

constexpr int8_t kGarbage = 0x5A;

template <typename F>
void on_every_isa(F&& f) {
  const test::RestoreCpu restore;
  for (const IsaLevel level : test::isa_levels({IsaLevel::kScalar, IsaLevel::kAvx2, restore.level})) {
    set_isa_cap(level);
    f();
  }
}

struct Output {
  std::vector<float> scales;
  std::vector<int8_t> codes;
  bool operator==(const Output&) const = default;
};

// A problem with its own memory. Codes have a stride of their own, what lies before it is pad.
struct Problem {
  int64_t rows, cols, stride;
  bool bf16 = false, folds = false, stochastic = false;
  std::vector<float> x, fold_row_order, fold_column_order;
  std::vector<uint16_t> narrow;
  RandomStream first{3, Purpose::kGradient, 17, 5}, second{3, Purpose::kGradientWeight, 17, 5};
  int64_t first_element = 0;

  Problem(int64_t r, int64_t c, unsigned seed) : rows(r), cols(c), stride((c + 7) / 8 * 8) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t n, std::vector<float>& v) {
      for (int64_t i = 0; i < n; ++i) v.push_back(bf16_to_float(bf16_from_float(normal(random))));
    };
    fill(rows * cols, x);
    fill(cols, fold_row_order);
    fill(rows, fold_column_order);
    for (const float v : x) narrow.push_back(bf16_from_float(v));
  }

  float folded(bool by_row, int64_t r, int64_t c) const {
    const float v = x[static_cast<size_t>(r * cols + c)];
    if (!folds) return v;
    return v * (by_row ? fold_row_order[static_cast<size_t>(c)] : fold_column_order[static_cast<size_t>(r)]);
  }

  Output expected(bool by_row) const {
    const int64_t lines = by_row ? rows : cols;
    Output out{std::vector<float>(static_cast<size_t>(lines), 0.0f),
               std::vector<int8_t>(static_cast<size_t>(rows * stride), 0)};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        float& upper = out.scales[static_cast<size_t>(by_row ? r : c)];
        upper = std::max(upper, std::fabs(folded(by_row, r, c)));
      }
    for (float& s : out.scales) s = std::max(s / 127.0f, 0x1p-126f);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const float inverse = 1.0f / out.scales[static_cast<size_t>(by_row ? r : c)];
        const float u = folded(by_row, r, c) * inverse;
        auto q = static_cast<int64_t>(std::nearbyint(u));
        if (stochastic) {
          const uint16_t draw = (by_row ? first : second).bits16(static_cast<uint64_t>(first_element + r * cols + c));
          q = test::code_by_draw(u, -127, 127, draw);
        }
        out.codes[static_cast<size_t>(r * stride + c)] = static_cast<int8_t>(std::clamp<int64_t>(q, -127, 127));
      }
    return out;
  }

  bool run(Output* by_row, Output* by_column) const {
    Int8OrdersArgs args;
    args.rows = rows;
    args.cols = cols;
    args.bf16 = bf16;
    args.x = bf16 ? static_cast<const void*>(narrow.data()) : x.data();
    const auto set = [&](Output* out, int64_t lines, const std::vector<float>& fold, const RandomStream& draws,
                         Int8Order& order) {
      if (out == nullptr) return;
      out->scales.assign(static_cast<size_t>(lines), -1.0f);
      out->codes.assign(static_cast<size_t>(rows * stride) + 1, kGarbage);
      order.fold = folds ? fold.data() : nullptr;
      order.scales = out->scales.data();
      order.codes = out->codes.data();
      order.stride = stride;
      order.sr = stochastic ? &draws : nullptr;
      order.first_element = first_element;
    };
    set(by_row, rows, fold_row_order, first, args.by_row);
    set(by_column, cols, fold_column_order, second, args.by_column);
    const FlagWord word;
    args.flags = word.word();
    const bool finite = test::found_finite(quantize_int8_orders(args), word);
    for (Output* out : {by_row, by_column}) {
      if (out == nullptr) continue;
      CHECK(out->codes.back() == kGarbage);
      out->codes.pop_back();
    }
    return finite;
  }
};

void check(const Problem& p) {
  INFO(p.rows << " x " << p.cols << (p.bf16 ? " bf16" : "") << (p.folds ? " folded" : "")
              << (p.stochastic ? " stochastic" : ""));
  const Output row = p.expected(true), column = p.expected(false);
  Output a, b;
  REQUIRE(p.run(&a, &b));
  CHECK(a == row);
  CHECK(b == column);
  REQUIRE(p.run(&a, nullptr));
  CHECK(a == row);
  REQUIRE(p.run(nullptr, &b));
  CHECK(b == column);
}

}  // namespace

TEST_CASE("int8 codes by row and by column are their formulas, together and alone, on every ISA") {
  on_every_isa([] {
    unsigned seed = 0;
    const int64_t shapes[][2] = {{1, 1},
                                 {1, 64},
                                 {3, 63},
                                 {5, 65},
                                 {64, 1},
                                 {17, 16},
                                 {100, 10},
                                 {0, 70},
                                 {70, 0},
                                 {2, 2047},
                                 {2, 2048},
                                 {3, 2049},
                                 {2, 4130},
                                 {700, 129},
                                 // Short rows of whole words, of one piece and of several chunks.
                                 {3, 16},
                                 {257, 8},
                                 {1000, 24},
                                 {31, 1024},
                                 {9000, 16}};
    for (const auto& shape : shapes)
      for (int form = 0; form < 8; ++form) {
        Problem p(shape[0], shape[1], ++seed);
        p.bf16 = (form & 1) != 0;
        p.folds = (form & 2) != 0;
        p.stochastic = (form & 4) != 0;
        p.first_element = form * 12345;
        check(p);
      }
  });
}

TEST_CASE("int8 codes: zeros, denormal maxima and numbers at the edge of fp32 keep the scale's floor and the range") {
  on_every_isa([] {
    for (const bool stochastic : {false, true}) {
      Problem p(9, 130, 77);
      p.stochastic = stochastic;
      for (int64_t c = 0; c < p.cols; ++c) {
        const float tiny[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-140f, 0x1p-127f, 0x1.fffffep-120f};
        p.x[static_cast<size_t>(c)] = 0.0f;
        p.x[static_cast<size_t>(130 + c)] = tiny[c % 6];
        p.x[static_cast<size_t>(260 + c)] = std::numeric_limits<float>::max() * (c % 2 == 0 ? 1.0f : -1.0f);
      }
      check(p);
    }
  });
}

TEST_CASE("int8 codes: a number that is not finite is reported, in x or made by folding, in the order that has it") {
  on_every_isa([] {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()})
      for (const int64_t at : {0, 17, 2048, 4129}) {
        Problem p(2, 2065, 5);
        p.x[static_cast<size_t>(at)] = bad;
        Output a, b;
        CHECK(!p.run(&a, &b));
        CHECK(!p.run(&a, nullptr));
        CHECK(!p.run(nullptr, &b));
      }
    Problem p(3, 66, 6);
    p.folds = true;
    p.x[70] = 0x1p127f;
    p.fold_row_order[4] = 4.0f;
    p.fold_column_order[1] = 0.5f;
    Output a, b;
    CHECK(!p.run(&a, &b));
    CHECK(!p.run(&a, nullptr));
    CHECK(p.run(nullptr, &b));
  });
}

TEST_CASE("int8 codes have the same bits for 1, 2 and 4 threads") {
  const test::RestoreCpu restore;
  Problem p(300, 1000, 9);
  p.stochastic = p.folds = true;
  set_num_threads(1);
  Output a, b;
  REQUIRE(p.run(&a, &b));
  for (const int threads : {2, 4}) {
    set_num_threads(threads);
    Output c, d;
    REQUIRE(p.run(&c, &d));
    CHECK(c == a);
    CHECK(d == b);
  }
}

}  // namespace bitgrad
