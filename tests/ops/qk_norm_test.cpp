// Queries and keys normalized by their root mean square, of heads and of rows: against doubles, gradients, errors.
#include <cmath>

#include "bitgrad/ops/attention.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// 4 heads of q over 2 of k, 6 features each.
constexpr int64_t kHeads = 4, kKv = 2, kDim = 6, kAll = (kHeads + 2 * kKv) * kDim;
constexpr double kEps = 0.03;

// The formula, in doubles: element c of a row of x.
double expected(const std::vector<double>& row, const std::vector<double>& q, const std::vector<double>& k, int64_t c) {
  const int64_t head = c / kDim;
  if (head >= kHeads + kKv) return row[static_cast<size_t>(c)];
  const bool of_q = head < kHeads;
  const std::vector<double>& gamma = of_q ? q : k;
  const int64_t count = std::ssize(gamma), from = (of_q ? 0 : kHeads * kDim), begin = from + (c - from) / count * count;
  double squares = 0;
  for (int64_t i = begin; i < begin + count; ++i) squares += row[static_cast<size_t>(i)] * row[static_cast<size_t>(i)];
  const double root = std::sqrt(squares / static_cast<double>(count) + kEps);
  return row[static_cast<size_t>(c)] / root * gamma[static_cast<size_t>(c - begin)];
}

struct Gammas {
  Tensor q, k;
};
Gammas gammas(bool rows, DType dtype) {
  return {random_tensor({rows ? kHeads * kDim : kDim}, dtype, 2, 0.5, 1.5),
          random_tensor({rows ? kKv * kDim : kDim}, dtype, 3, 0.5, 1.5)};
}

}  // namespace

TEST_CASE("q and k are divided by their root mean square, of each head or of all of a row, and v is not") {
  const Tensor x = random_tensor({2, 3, kAll}, dtypes::fp32, 1, -2, 2);
  const std::vector<double> in = x.elements();
  for (const bool rows : {false, true}) {
    const auto [q, k] = gammas(rows, dtypes::fp32);
    const Tensor y = qk_norm(Var(x), Var(q), Var(k), kHeads, kKv, static_cast<float>(kEps)).value();
    REQUIRE(y.shape() == x.shape());
    const std::vector<double> got = y.elements();
    for (int64_t r = 0; r < 6; ++r) {
      const std::vector<double> row(in.begin() + r * kAll, in.begin() + (r + 1) * kAll);
      for (int64_t c = 0; c < kAll; ++c)
        CHECK(got[static_cast<size_t>(r * kAll + c)] ==
              Approx(expected(row, q.elements(), k.elements(), c)).margin(1e-5));
    }
  }
}

TEST_CASE("gradients of qk_norm, and of attention behind it, are those of differences") {
  const Tensor x = random_tensor({2, 5, kAll}, dtypes::fp64, 1, -2, 2);
  const RopeOptions turn{.dim = kDim, .base = 50};
  for (const bool rows : {false, true}) {
    const auto [q, k] = gammas(rows, dtypes::fp64);
    CHECK(gradcheck([](const auto& v) { return qk_norm(v[0], v[1], v[2], kHeads, kKv, 0.1f); }, {x, q, k}) == "");
    const auto attended = [&](const auto& v) {
      const Var normed = qk_norm(v[0], v[1], v[2], kHeads, kKv, 0.1f);
      return attention(rope(normed, rope_table(5, turn), turn, 0, kHeads + kKv), {.heads = kHeads, .kv_heads = kKv});
    };
    CHECK(gradcheck(attended, {x, q, k}) == "");
  }
}

TEST_CASE("a row of qk_norm depends on itself alone") {
  const Tensor x = random_tensor({1, 5, kAll}, dtypes::fp32, 1, -2, 2);
  const auto [q, k] = gammas(false, dtypes::fp32);
  const auto bits = [&](const Var& rows) { return bits_of(qk_norm(rows, Var(q), Var(k), kHeads, kKv).value()); };
  const Tensor all = qk_norm(Var(x), Var(q), Var(k), kHeads, kKv).value();
  for (int64_t i = 0; i < 5; ++i)
    CHECK(bits(slice(Var(x), 1, i, i + 1)) == bits_of(slice(Var(all), 1, i, i + 1).value()));
}

TEST_CASE("qk_norm reports shapes that do not fit") {
  const auto error = [](const Tensor& x, int64_t q, int64_t k) {
    const auto ones = [](int64_t n) { return Var(Tensor::full({n}, dtypes::fp32, 1)); };
    return error_of([&] { qk_norm(Var(x), ones(q), ones(k), kHeads, kKv); });
  };
  const Tensor x = random_tensor({1, 2, kAll}, dtypes::fp32, 1);
  CHECK(error(x, kDim, kDim).empty());
  CHECK(contains(error(x, kDim + 1, kDim), "q_gamma must be [6], for each head, or [24], for all of a row, got [7]"));
  CHECK(contains(error(x, kDim, 2 * kAll), "k_gamma must be [6], for each head, or [12]"));
  CHECK(contains(error(random_tensor({1, 2, 47}, dtypes::fp32, 1), kDim, kDim),
                 "x must be [n,t,(4 + 2 * 2)*d], q, k and v side by side, got [1,2,47]"));
  CHECK(contains(error(random_tensor({2, kAll}, dtypes::fp32, 1), kDim, kDim), "x must be [n,t,"));
}
