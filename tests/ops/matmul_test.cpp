// matmul: values and gradients against sums in double and integers, members against products alone, shapes at edges,
// errors.
#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/ops.h"
#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Run {
  Tensor y, ga, gb;
};
Run run_matmul(const Tensor& a, const Tensor& b, bool transposed_b, const Tensor& gy, DType grad = dtypes::fp32) {
  AccumulateSink sa, sb;
  Tape tape;
  const Var y = matmul(tape.leaf(a, &sa, grad), tape.leaf(b, &sb, grad), {.transposed_b = transposed_b});
  tape.backward({y}, {gy});
  return {y.value(), sa.grad(), sb.grad()};
}

// Member i of [.., rows, cols] as a matrix; a matrix is every member.
std::vector<double> member(const std::vector<double>& numbers, const Shape& shape, int64_t i) {
  if (shape.rank() == 2) return numbers;
  const int64_t size = shape[-2] * shape[-1];
  return {numbers.begin() + i * size, numbers.begin() + (i + 1) * size};
}

// Forward and gradients of every member in double; gb of a matrix b is summed over all.
struct Expected {
  Product y, ga, gb;
};
void append(Product& to, const Product& from) {
  to.value.insert(to.value.end(), from.value.begin(), from.value.end());
  to.magnitude.insert(to.magnitude.end(), from.magnitude.begin(), from.magnitude.end());
}
void add(Product& to, const Product& from) {
  if (to.value.empty()) return append(to, from);
  for (size_t i = 0; i < to.value.size(); ++i) to.value[i] += from.value[i], to.magnitude[i] += from.magnitude[i];
}
Expected expected_of(const Tensor& a, const Tensor& b, bool transposed_b, const Tensor& gy) {
  const int64_t m = a.shape()[-2], k = a.shape()[-1], n = gy.shape()[-1],
                count = a.shape().rows() / std::max<int64_t>(1, m);
  const std::vector<double> va = a.values(), vb = b.values(), vg = gy.elements();
  Expected out;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<double> ma = member(va, a.shape(), i), mb = member(vb, b.shape(), i),
                              mg = member(vg, gy.shape(), i);
    const auto at_a = [&](int64_t r, int64_t c) { return ma[static_cast<size_t>(r * k + c)]; };
    const auto at_b = [&](int64_t r, int64_t c) {
      return mb[static_cast<size_t>(transposed_b ? c * k + r : r * n + c)];
    };
    const auto at_g = [&](int64_t r, int64_t c) { return mg[static_cast<size_t>(r * n + c)]; };
    append(out.y, product(m, n, k, at_a, [&](int64_t j, int64_t t) { return at_b(t, j); }));
    append(out.ga, product(m, k, n, at_g, at_b));
    const Product gb = transposed_b ? product(
                                          n, k, m, [&](int64_t j, int64_t t) { return at_g(t, j); },
                                          [&](int64_t j, int64_t t) { return at_a(t, j); })
                                    : product(
                                          k, n, m, [&](int64_t j, int64_t t) { return at_a(t, j); },
                                          [&](int64_t j, int64_t t) { return at_g(t, j); });
    b.shape().rank() == 2 ? add(out.gb, gb) : append(out.gb, gb);
  }
  return out;
}

// Errors of y, ga and gb in units of their bounds.
std::string far_off(const Tensor& a, const Tensor& b, bool transposed_b, uint64_t seed) {
  std::vector<int64_t> dims = a.shape().dims();
  dims.back() = transposed_b ? b.shape()[-2] : b.shape()[-1];
  const Tensor gy = random_tensor(Shape(dims), dtypes::fp32, seed);
  const Run run = run_matmul(a, b, transposed_b, gy);
  const Expected e = expected_of(a, b, transposed_b, gy);
  const int64_t k = a.shape()[-1], n = dims.back(), rows = b.shape().rank() == 2 ? a.rows() : a.shape()[-2];
  const double y = worst(run.y, e.y, k), ga = worst(run.ga, e.ga, n), gb = worst(run.gb, e.gb, rows);
  if (run.y.shape() == gy.shape() && run.ga.shape() == a.shape() && run.gb.shape() == b.shape() && y <= 1 && ga <= 1 &&
      gb <= 1)
    return "";
  return concat("a ", a, ", b ", b, transposed_b ? " transposed" : "", ": errors of y, ga, gb in units of their bound ",
                y, ", ", ga, ", ", gb);
}

struct Case {
  Shape a;
  int64_t n;
};
const std::vector<Case> kCases = {{{1, 1}, 1},          {{3, 5}, 4},        {{2, 3, 5}, 4},   {{7, 16, 8}, 17},
                                  {{2, 3, 33, 31}, 65}, {{1, 2, 1, 64}, 1}, {{3, 64, 65}, 2}, {{2, 130, 513}, 7},
                                  {{70, 2, 3}, 2},      {{2, 9, 40}, 260}};
Shape b_shape(const Case& c, bool transposed, bool shared) {
  std::vector<int64_t> dims = c.a.dims();
  const int64_t k = c.a[-1];
  if (shared) dims.resize(2);
  dims[dims.size() - 2] = transposed ? c.n : k;
  dims.back() = transposed ? k : c.n;
  return Shape(dims);
}

// As one bool: a failure does not print thousands of numbers.
bool same_bits(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) { return a == b; }

}  // namespace

TEST_CASE("matmul and its gradients are the sums of products of every member") {
  uint64_t seed = 1;
  for (const Case& c : kCases)
    for (const bool transposed : {false, true})
      for (const bool shared : {false, true}) {
        seed += 3;
        CHECK(far_off(random_tensor(c.a, dtypes::fp32, seed),
                      random_tensor(b_shape(c, transposed, shared), dtypes::fp32, seed + 1), transposed,
                      seed + 2) == "");
      }
}

TEST_CASE("matmul supports bf16, fp16 and codes of every dtype, with scales of every granularity, on either side") {
  uint64_t seed = 100;
  const Case c{{3, 8, 40}, 12};
  std::vector<std::pair<DType, DType>> pairs{
      {dtypes::bf16, dtypes::bf16}, {dtypes::fp16, dtypes::fp32}, {dtypes::fp32, dtypes::bf16}};
  for (const DType d : code_dtypes()) {
    pairs.emplace_back(d, dtypes::fp32);
    pairs.emplace_back(dtypes::fp32, d);
    pairs.emplace_back(dtypes::int8, d);
  }
  const std::vector<Granularity> granularities{Granularity::tensor(), Granularity::token(), Granularity::channel(1),
                                               Granularity::groups(16), Granularity::groups(4, 0)};
  const auto made = [&](const Shape& shape, DType d, const Granularity& g, ZeroKind zero) {
    return d.is_code() ? random_codes(shape, d, ++seed, g, zero) : random_tensor(shape, d, ++seed);
  };
  size_t turn = 0;
  for (const auto& [da, db] : pairs)
    for (const bool transposed : {false, true})
      for (const bool shared : {false, true}) {
        const Granularity &ga = granularities[turn % 5], &gb = granularities[turn / 5 % 5];
        const auto zero = static_cast<ZeroKind>(turn / 2 % 3);
        ++turn;
        const Tensor a = made(c.a, da, ga, zero);
        const Tensor b = made(b_shape(c, transposed, shared), db, gb, turn % 2 == 0 ? zero : ZeroKind::kNone);
        CHECK(far_off(a, b, transposed, ++seed) == "");
      }
}

TEST_CASE("products of bare codes are exact integers") {
  uint64_t seed = 500;
  for (const auto& [da, db] : {std::pair{dtypes::int8, dtypes::int8}, std::pair{dtypes::bint1, dtypes::bint1},
                               std::pair{dtypes::uint4, dtypes::ternary}})
    for (const bool transposed : {false, true}) {
      const Tensor a = random_tensor({5, 9, 130}, da, ++seed);
      const Tensor b = random_tensor(transposed ? Shape{5, 33, 130} : Shape{5, 130, 33}, db, ++seed);
      const Tensor gy = random_tensor({5, 9, 33}, dtypes::fp32, 1);
      CHECK(matmul(Var(a), Var(b), {.transposed_b = transposed}).value().elements() ==
            expected_of(a, b, transposed, gy).y.value);
    }
}

TEST_CASE("matmul passes the gradient check") {
  for (const bool transposed : {false, true})
    for (const bool shared : {false, true})
      for (const Case& c : {Case{{4, 3}, 5}, Case{{3, 2, 4}, 3}, Case{{2, 2, 3, 2}, 1}, Case{{2, 1, 5}, 2}})
        CHECK(gradcheck([&](const std::vector<Var>& v) { return matmul(v[0], v[1], {.transposed_b = transposed}); },
                        {random_tensor(c.a, dtypes::fp64, 701),
                         random_tensor(b_shape(c, transposed, shared), dtypes::fp64, 702)}) == "");
}

TEST_CASE("a member has the bits of the product alone, in both modes and for any number of threads") {
  const int before = num_threads();
  for (const BitsMode mode : {BitsMode::kFast, BitsMode::kStrict}) {
    const BitsMode old = bits_mode();
    set_bits_mode(mode);
    // Of one bit and wide enough for tables of sums, and floats.
    for (const DType d : {dtypes::fp32, dtypes::bint1, dtypes::int4}) {
      const Tensor a = random_tensor({7, 9, 70}, dtypes::fp32, 1), b = random_tensor({7, 260, 70}, d, 2);
      const Tensor gy = random_tensor({7, 9, 260}, dtypes::fp32, 3);
      set_num_threads(1);
      const Run one = run_matmul(a, b, true, gy);
      set_num_threads(3);
      const Run all = run_matmul(a, b, true, gy);
      CHECK(same_bits(bits_of(all.y), bits_of(one.y)));
      CHECK(same_bits(bits_of(all.ga), bits_of(one.ga)));
      CHECK(same_bits(bits_of(all.gb), bits_of(one.gb)));
      for (int64_t i = 0; i < 7; ++i) {
        const auto matrix = [i](const Tensor& t) {
          return t.row_slice(i, i + 1).reshape({t.shape()[1], t.shape()[2]});
        };
        const Run alone = run_matmul(matrix(a), matrix(b), true, matrix(gy));
        CHECK(same_bits(bits_of(alone.y), bits_of(matrix(all.y))));
        CHECK(same_bits(bits_of(alone.ga), bits_of(matrix(all.ga))));
        CHECK(same_bits(bits_of(alone.gb), bits_of(matrix(all.gb))));
      }
    }
    set_bits_mode(old);
  }
  set_num_threads(before);
}

TEST_CASE("matmul with a matrix b that is transposed is linear without a bias") {
  const StrictBits strict;
  const Tensor x = random_tensor({12, 70}, dtypes::fp32, 1), w = random_codes({20, 70}, dtypes::int4, 2);
  const Tensor gy = random_tensor({12, 20}, dtypes::fp32, 3);
  const LinearRun linear = run_linear(x, w, gy);
  const Run run = run_matmul(x, w, true, gy);
  CHECK(same_bits(bits_of(run.y), bits_of(linear.y)));
  CHECK(same_bits(bits_of(run.ga), bits_of(linear.gx)));
  CHECK(same_bits(bits_of(run.gb), bits_of(linear.gw)));
  const Run deep = run_matmul(x.reshape({3, 4, 70}), w, true, gy.reshape({3, 4, 20}));
  CHECK(same_bits(bits_of(deep.y), bits_of(linear.y)));
  CHECK(same_bits(bits_of(deep.ga), bits_of(linear.gx)));
  CHECK(same_bits(bits_of(deep.gb), bits_of(linear.gw)));
  CHECK(deep.y.shape() == Shape{3, 4, 20});
}

TEST_CASE("gradients in bf16 are the fp32 ones rounded once") {
  const StrictBits strict;
  const Tensor a = random_tensor({3, 5, 9}, dtypes::fp32, 1), b = random_tensor({3, 9, 6}, dtypes::fp32, 2);
  const Tensor gy = random_tensor({3, 5, 6}, dtypes::fp32, 3);
  const Run wide = run_matmul(a, b, false, gy), narrow = run_matmul(a, b, false, gy, dtypes::bf16);
  const auto rounded = [](const Tensor& t) { return Tensor::from_elements(t.shape(), dtypes::bf16, t.elements()); };
  CHECK(narrow.ga.elements() == rounded(wide.ga).elements());
  CHECK(narrow.gb.elements() == rounded(wide.gb).elements());
  CHECK(narrow.ga.dtype() == dtypes::bf16);
}

TEST_CASE("one tensor may be both factors, and gradients of several uses add up") {
  const Tensor x = random_tensor({2, 3, 3}, dtypes::fp64, 5);
  CHECK(gradcheck([](const auto& v) { return matmul(v[0], v[0], {.transposed_b = true}); }, {x}) == "");
  CHECK(gradcheck([](const auto& v) { return matmul(matmul(v[0], v[0]), v[0]); }, {x}) == "");
}

TEST_CASE("empty axes give empty products, and sums of nothing are 0") {
  const auto shape_of = [](const Shape& a, const Shape& b) {
    const Run run = run_matmul(Tensor::zeros(a, dtypes::fp32), Tensor::zeros(b, dtypes::fp32), false,
                               Tensor::zeros(Shape{a[0], a[1], b[-1]}, dtypes::fp32));
    CHECK(run.ga.shape() == a);
    CHECK(run.gb.shape() == b);
    for (const double v : run.y.elements()) CHECK(v == 0);
    for (const double v : run.gb.elements()) CHECK(v == 0);
    return run.y.shape();
  };
  CHECK(shape_of({0, 3, 4}, {0, 4, 5}) == Shape{0, 3, 5});
  CHECK(shape_of({2, 0, 4}, {2, 4, 5}) == Shape{2, 0, 5});
  CHECK(shape_of({2, 3, 0}, {2, 0, 5}) == Shape{2, 3, 5});
  CHECK(shape_of({2, 3, 4}, {2, 4, 0}) == Shape{2, 3, 0});
  CHECK(shape_of({0, 3, 4}, {4, 5}) == Shape{0, 3, 5});
}

TEST_CASE("matmul reports shapes that do not fit") {
  const auto error = [](const Tensor& a, const Tensor& b, bool transposed = false) {
    return error_of([&] { matmul(Var(a), Var(b), {.transposed_b = transposed}); });
  };
  const auto of = [](const Shape& shape, DType dtype = dtypes::fp32) { return Tensor::zeros(shape, dtype); };
  CHECK(error(of({4}), of({4, 5})) == "[matmul] a: got [4] fp32, expected at least 2 axes");
  CHECK(error(of({4, 5}), of({5})) == "[matmul] b: got [5] fp32, expected at least 2 axes");
  CHECK(error(of({2, 3, 4}), of({2, 5, 4})) ==
        "[matmul] a has 4 columns, b has 5 rows (a [2,3,4] fp32, b [2,5,4] fp32). For b [.., n, k] set transposed_b.");
  CHECK(error(of({2, 3, 4}), of({2, 4, 5}), true) ==
        "[matmul] a has 4 columns, b has 5 columns (a [2,3,4] fp32, b [2,4,5] fp32). b [.., k, n] goes without "
        "transposed_b.");
  CHECK(error(of({2, 3, 4}), of({3, 4, 5})) ==
        "[matmul] leading axes differ: got a [2,3,4] fp32, b [3,4,5] fp32, expected equal ones, or a matrix b that all "
        "of a is multiplied with. Reshape them.");
  CHECK(contains(error(of({3, 4}), of({3, 4, 5})), "leading axes differ: got a [3,4] fp32"));
  CHECK(contains(error(of({1, 2, 3, 4}), of({2, 4, 5})), "leading axes differ"));
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(error(of({2, 3}, dtypes::fp64), of({3, 2})) ==
          "[matmul] a and b must both be fp64, or neither: got a [2,3] fp64, b [3,2] fp32");
  CHECK(error(of({2, 3}), of({3, 2}, dtypes::int32)) ==
        "[matmul] b: got [3,2] int32, expected floats or codes of at most 8 bits. For products of wider integers use "
        "out_dtype.");
  const Tensor cut = random_codes({2, 6, 8}, dtypes::int8, 1, Granularity::groups(4, 0));
  CHECK(error(cut, of({2, 8, 5})) ==
        "[matmul] scales of [2,6,8] int8 per group(0,4) span its matrices of 6 rows: expected groups that divide them");
  CHECK(error(cut, of({8, 5})) == "");  // one matrix of 12 rows
}
