// Family rowwise against formulas spelled out here: with == in the order of docs/numerics.md section 8, and against
// doubles.
#include "kernels/rowwise.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"
#include "support/everywhere.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

// A dense matrix of floats in fp32 or bf16.
struct Matrix {
  int64_t rows, cols;
  DType dtype;
  std::vector<float> wide;  // the values
  std::vector<uint16_t> narrow;

  Matrix(int64_t r, int64_t c, DType d, uint32_t seed, float scale = 3.0f) : rows(r), cols(c), dtype(d) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t i = 0; i < r * c; ++i) {
      narrow.push_back(bf16_from_float(normal(random)));
      wide.push_back(d == dtypes::bf16 ? bf16_to_float(narrow.back()) : normal(random));
    }
  }
  void* place() { return dtype == dtypes::bf16 ? static_cast<void*>(narrow.data()) : wide.data(); }
  FloatsIn in() { return {place(), dtype}; }
  FloatsOut out() { return {place(), dtype}; }
  const float* row(int64_t r) const { return wide.data() + r * cols; }
};

// Joins the numbers of a sequence in the order of section 8; `join` is a + b or the larger.
template <typename Join>
float in_order(const std::vector<float>& x, float start, Join join) {
  std::vector<float> chunks;
  for (size_t first = 0; first < x.size() || chunks.empty(); first += 1024) {
    float lane[16];
    std::fill(lane, lane + 16, start);
    for (size_t i = first; i < std::min(first + 1024, x.size()); ++i)
      lane[(i - first) % 16] = join(lane[(i - first) % 16], x[i]);
    for (size_t half = 8; half >= 1; half /= 2)
      for (size_t l = 0; l < half; ++l) lane[l] = join(lane[l], lane[l + half]);
    chunks.push_back(lane[0]);
  }
  while (chunks.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i + 1 < chunks.size(); i += 2) next.push_back(join(chunks[i], chunks[i + 1]));
    if (chunks.size() % 2 == 1) next.push_back(chunks.back());
    chunks = next;
  }
  return chunks[0];
}
float sum_in_order(const std::vector<float>& x) {
  return in_order(x, 0.0f, [](float a, float b) { return a + b; });
}
float largest(const float* x, int64_t n) {
  float top = -kInfinite;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}
template <typename F>
std::vector<float> each(int64_t n, F f) {
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(f(i));
  return out;
}

int64_t differing_bits(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t count = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]));
  return count;
}
// What a matrix holds after a kernel wrote it.
std::vector<float> values_of(const Matrix& m) {
  if (m.dtype != dtypes::bf16) return m.wide;
  return each(m.rows * m.cols, [&](int64_t i) { return bf16_to_float(m.narrow[static_cast<size_t>(i)]); });
}
std::vector<float> stored(const Matrix& like, std::vector<float> values) {
  if (like.dtype == dtypes::bf16)
    for (float& v : values) v = bf16_to_float(bf16_from_float(v));
  return values;
}

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{1, 1},    {3, 2},    {5, 15},   {2, 16},   {4, 17},
                                                          {3, 64},   {7, 65},   {2, 1023}, {3, 1024}, {2, 1025},
                                                          {2, 2048}, {3, 3100}, {1, 7169}};
const std::vector<DType> kBoth = {dtypes::fp32, dtypes::bf16};

std::vector<float> softmax_of(const float* x, int64_t n) {
  const float top = largest(x, n);
  const std::vector<float> e = each(n, [&](int64_t i) { return math::exp(x[i] - top); });
  const float total = sum_in_order(e);
  return each(n, [&](int64_t i) { return e[static_cast<size_t>(i)] / total; });
}

}  // namespace

TEST_CASE("softmax of a row is exp(x - max) over its sum in the order of section 8, on every ISA") {
  for (const auto& [rows, cols] : kShapes)
    for (const DType dtype : kBoth) {
      Matrix x(rows, cols, dtype, 1);
      std::vector<float> expected;
      for (int64_t r = 0; r < rows; ++r)
        for (const float v : softmax_of(x.row(r), cols)) expected.push_back(v);
      double worst = 0;
      for (int64_t r = 0; r < rows; ++r) {
        double total = 0;
        for (int64_t i = 0; i < cols; ++i) total += std::exp(static_cast<double>(x.row(r)[i]));
        for (int64_t i = 0; i < cols; ++i) {
          const double exact = std::exp(static_cast<double>(x.row(r)[i])) / total;
          worst =
              std::max(worst, std::fabs(static_cast<double>(expected[static_cast<size_t>(r * cols + i)]) / exact - 1));
        }
      }
      INFO("rows " << rows << " cols " << cols);
      // x - max and exp round once each (up to 2^-24 max |x - max| and 2^-24), the sum 6 + 64 + 7 times, the division
      // once.
      CHECK(worst <= (24 + 2 + 77) * 0x1p-24);
      everywhere([&] {
        Matrix y(rows, cols, dtype, 2);
        softmax_rows({rows, cols, x.in(), y.out()});
        CHECK(differing_bits(values_of(y), stored(y, expected)) == 0);
      });
      if (dtype == dtypes::bf16) continue;
      softmax_rows({rows, cols, x.in(), x.out()});
      CHECK(differing_bits(values_of(x), expected) == 0);
    }
}

TEST_CASE("softmax treats -Inf as weight zero, and gives NaN for rows without weight") {
  const float x[] = {0, -kInfinite, 0, -kInfinite, -kInfinite, -kInfinite, 1, kInfinite, 2, NAN, 0, 0, 1, 2, NAN};
  float y[15];
  softmax_rows({5, 3, {x, dtypes::fp32}, {y, dtypes::fp32}});
  CHECK((y[0] == 0.5f && y[1] == 0.0f && y[2] == 0.5f));
  for (int i = 3; i < 15; ++i) CHECK(std::isnan(y[i]));
}

TEST_CASE("the backward of softmax is y (gy - sum gy y)") {
  for (const auto& [rows, cols] : kShapes)
    for (const DType dtype : kBoth)
      for (const DType gy_dtype : kBoth) {
        Matrix y(rows, cols, dtype, 3), gy(rows, cols, gy_dtype, 4);
        std::vector<float> expected;
        for (int64_t r = 0; r < rows; ++r) {
          const float *p = y.row(r), *g = gy.row(r);
          const float dot = sum_in_order(each(cols, [&](int64_t i) { return g[i] * p[i]; }));
          for (int64_t i = 0; i < cols; ++i) expected.push_back(p[i] * (g[i] - dot));
        }
        everywhere([&] {
          Matrix gx(rows, cols, dtypes::fp32, 5);
          softmax_rows_backward({rows, cols, y.in(), gy.in(), gx.out()});
          CHECK(differing_bits(gx.wide, expected) == 0);
        });
      }
}

TEST_CASE("layer norm and RMS norm follow their formulas, operation by operation") {
  for (const auto& [rows, cols] : kShapes)
    for (const DType dtype : kBoth)
      for (const bool centered : {true, false})
        for (const bool shift : {true, false}) {
          Matrix x(rows, cols, dtype, 6), gamma(1, cols, dtypes::fp32, 7), beta(1, cols, dtypes::fp32, 8);
          const float n = static_cast<float>(cols), eps = 1e-3f;
          std::vector<float> y_expected, mean_expected, inv_expected;
          for (int64_t r = 0; r < rows; ++r) {
            const float* p = x.row(r);
            const float mean = centered ? sum_in_order(std::vector<float>(p, p + cols)) / n : 0.0f;
            const float squares = sum_in_order(each(cols, [&](int64_t i) { return (p[i] - mean) * (p[i] - mean); }));
            const float inv = 1.0f / std::sqrt(squares / n + eps);
            mean_expected.push_back(mean);
            inv_expected.push_back(inv);
            for (int64_t i = 0; i < cols; ++i) {
              const float scaled = ((p[i] - mean) * inv) * gamma.wide[static_cast<size_t>(i)];
              y_expected.push_back(shift ? scaled + beta.wide[static_cast<size_t>(i)] : scaled);
            }
          }
          everywhere([&] {
            Matrix y(rows, cols, dtype, 9), mean(1, rows, dtypes::fp32, 10), inv(1, rows, dtypes::fp32, 11);
            NormRowsArgs args;
            args.rows = rows;
            args.cols = cols;
            args.x = x.in();
            args.centered = centered;
            args.eps = eps;
            args.gamma = gamma.in();
            if (shift) args.beta = beta.in();
            args.y = y.out();
            if (centered) args.mean = mean.out();
            args.inv = inv.out();
            norm_rows(args);
            CHECK(differing_bits(values_of(y), stored(y, y_expected)) == 0);
            CHECK(differing_bits(inv.wide, inv_expected) == 0);
            if (centered) CHECK(differing_bits(mean.wide, mean_expected) == 0);
          });
        }
}

TEST_CASE("the backward of the norms gives gradients of x, scale and shift, each alone too") {
  auto shapes = kShapes;
  shapes.insert(shapes.end(), {{1024, 3}, {1025, 66}, {2100, 5}});
  for (const auto& [rows, cols] : shapes)
    for (const DType dtype : kBoth)
      for (const bool centered : {true, false}) {
        Matrix x(rows, cols, dtype, 12), gy(rows, cols, centered ? dtypes::fp32 : dtypes::bf16, 13);
        Matrix gamma(1, cols, dtypes::fp32, 14), mean(1, rows, dtypes::fp32, 15), inv(1, rows, dtypes::fp32, 16);
        const auto xhat = [&, c = cols](int64_t r, int64_t i) {
          return (x.wide[static_cast<size_t>(r * c + i)] - (centered ? mean.wide[static_cast<size_t>(r)] : 0.0f)) *
                 inv.wide[static_cast<size_t>(r)];
        };
        std::vector<float> gx_expected, ggamma_expected, gbeta_expected;
        const float n = static_cast<float>(cols);
        for (int64_t r = 0; r < rows; ++r) {
          const std::vector<float> h =
              each(cols, [&](int64_t i) { return gy.row(r)[i] * gamma.wide[static_cast<size_t>(i)]; });
          const float mean_h = centered ? sum_in_order(h) / n : 0.0f;
          const float mean_hx =
              sum_in_order(each(cols, [&](int64_t i) { return h[static_cast<size_t>(i)] * xhat(r, i); })) / n;
          for (int64_t i = 0; i < cols; ++i)
            gx_expected.push_back(((h[static_cast<size_t>(i)] - mean_h) - xhat(r, i) * mean_hx) *
                                  inv.wide[static_cast<size_t>(r)]);
        }
        for (int64_t i = 0; i < cols; ++i) {
          gbeta_expected.push_back(sum_in_order(each(rows, [&](int64_t r) { return gy.row(r)[i]; })));
          ggamma_expected.push_back(sum_in_order(each(rows, [&](int64_t r) { return gy.row(r)[i] * xhat(r, i); })));
        }
        INFO("rows " << rows << " cols " << cols << " centered " << centered);
        everywhere([&] {
          Matrix gx(rows, cols, dtypes::fp32, 17), ggamma(1, cols, dtypes::fp32, 18), gbeta(1, cols, dtypes::fp32, 19);
          const std::vector<float> untouched = gbeta.wide;
          NormRowsBackwardArgs args;
          args.rows = rows;
          args.cols = cols;
          args.x = x.in();
          args.gy = gy.in();
          args.centered = centered;
          args.gamma = gamma.in();
          if (centered) args.mean = mean.in();
          args.inv = inv.in();
          args.ggamma = ggamma.out();
          norm_rows_backward(args);
          CHECK(differing_bits(ggamma.wide, ggamma_expected) == 0);
          CHECK(gbeta.wide == untouched);
          args.ggamma = {};
          args.gbeta = gbeta.out();
          args.gx = gx.out();
          norm_rows_backward(args);
          CHECK(differing_bits(gx.wide, gx_expected) == 0);
          CHECK(differing_bits(gbeta.wide, gbeta_expected) == 0);
        });
      }
}

TEST_CASE("cross-entropy of rows: loss, what its gradient needs, ignored rows and invalid targets") {
  constexpr int32_t kIgnored = -7;
  for (const auto& [rows, cols] : kShapes)
    for (const DType dtype : kBoth) {
      Matrix x(rows, cols, dtype, 20);
      std::vector<int32_t> targets;
      for (int64_t r = 0; r < rows; ++r)
        targets.push_back(r % 3 == 1 ? kIgnored : static_cast<int32_t>((r * 31 + 5) % cols));
      std::vector<float> loss_expected, gx_expected;
      const float factor = 0.3f;
      for (int64_t r = 0; r < rows; ++r) {
        const int32_t t = targets[static_cast<size_t>(r)];
        const float top = largest(x.row(r), cols);
        const std::vector<float> e = each(cols, [&](int64_t i) { return math::exp(x.row(r)[i] - top); });
        const float total = sum_in_order(e);
        loss_expected.push_back(t == kIgnored ? 0.0f : math::log(total) - (x.row(r)[t] - top));
        for (int64_t i = 0; i < cols; ++i)
          gx_expected.push_back(t == kIgnored ? 0.0f
                                              : (e[static_cast<size_t>(i)] / total - (i == t ? 1.0f : 0.0f)) * factor);
      }
      everywhere([&] {
        Matrix loss(1, rows, dtypes::fp32, 21), top(1, rows, dtypes::fp32, 22), total(1, rows, dtypes::fp32, 23);
        Matrix gx(rows, cols, dtypes::fp32, 24);
        uint32_t flags = 8;
        cross_entropy_rows({rows, cols, x.in(), targets.data(), kIgnored, loss.out(), top.out(), total.out(), &flags});
        CHECK(flags == 8);
        CHECK(differing_bits(loss.wide, loss_expected) == 0);
        cross_entropy_rows_backward(
            {rows, cols, x.in(), targets.data(), kIgnored, top.in(), total.in(), {&factor, dtypes::fp32}, gx.out()});
        CHECK(differing_bits(gx.wide, gx_expected) == 0);
        targets[0] = static_cast<int32_t>(cols);
        cross_entropy_rows({rows, cols, x.in(), targets.data(), kIgnored, loss.out(), top.out(), total.out(), &flags});
        CHECK(flags == (8 | kFlagNoClass));
        targets[0] = static_cast<int32_t>(5 % cols);
      });
    }
}

TEST_CASE("the rank of a target counts what is larger, NaN, or equal before it") {
  const float x[] = {2, 1, 2, 3, NAN, 2, -0.0f, 0, 0, 1, NAN, 2};
  const std::vector<int32_t> targets = {2, 2, 2, 1}, ignored = {-1, 0, -1, 5};
  everywhere([&] {
    int32_t rank[4];
    uint32_t flags = 0;
    target_ranks({4, 3, {x, dtypes::fp32}, targets.data(), -1, rank, &flags});
    CHECK(std::vector<int32_t>(rank, rank + 4) == std::vector<int32_t>{1, 2, 2, kNoRank});
    CHECK(flags == 0);
    target_ranks({4, 3, {x, dtypes::fp32}, ignored.data(), -1, rank, &flags});
    CHECK((rank[0] == kNoRank && rank[1] == 1 && rank[2] == kNoRank && flags == kFlagNoClass));
  });
  for (const auto& [rows, cols] : kShapes) {
    Matrix m(rows, cols, dtypes::bf16, 26, 0.1f);  // with ties
    std::vector<int32_t> t, expected, rank(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      t.push_back(static_cast<int32_t>((r * 13 + cols / 2) % cols));
      int32_t count = 0;
      for (int64_t i = 0; i < cols; ++i)
        count += m.row(r)[i] > m.row(r)[t.back()] || (m.row(r)[i] == m.row(r)[t.back()] && i < t.back());
      expected.push_back(count);
    }
    everywhere([&] {
      target_ranks({rows, cols, m.in(), t.data(), -1, rank.data(), nullptr});
      CHECK(rank == expected);
    });
  }
}

TEST_CASE("a row has the same bits alone and among others") {
  Matrix x(40, 1030, dtypes::fp32, 27), all(40, 1030, dtypes::fp32, 28), one(1, 1030, dtypes::fp32, 29);
  softmax_rows({40, 1030, x.in(), all.out()});
  for (const int64_t r : {int64_t{0}, int64_t{15}, int64_t{39}}) {
    softmax_rows({1, 1030, {x.row(r), dtypes::fp32}, one.out()});
    CHECK(std::equal(one.wide.begin(), one.wide.end(), all.row(r)));
  }
}

TEST_CASE("no rows, and rows without elements, are nothing to do") {
  float none = 7;
  softmax_rows({0, 5, {&none, dtypes::fp32}, {&none, dtypes::fp32}});
  softmax_rows({3, 0, {&none, dtypes::fp32}, {&none, dtypes::fp32}});
  CHECK(none == 7);
}

}  // namespace bitgrad::test
