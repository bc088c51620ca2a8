// out_dtype against sums of 128 bits written here, for every pair of integer dtypes. BITGRAD_TEST_SHAPES sets the
// number of random shapes.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/flag.h"
#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/shape_count.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Rng = std::mt19937_64;
__extension__ using Int128 = __int128;

int64_t draw(Rng& rng, int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); }
// 0 now and then, else 1 .. high, small numbers as likely as large ones.
int64_t draw_size(Rng& rng, int64_t high) {
  if (draw(rng, 0, 15) == 0) return 0;
  return static_cast<int64_t>(
      std::exp2(std::uniform_real_distribution<double>(0, std::log2(static_cast<double>(high)))(rng)));
}

std::vector<DType> integer_dtypes() {
  std::vector<DType> out;
  for (const DType d : all_dtypes())
    if (integer_kind(d)) out.push_back(d);
  return out;
}
std::vector<DType> result_dtypes() {
  std::vector<DType> out{dtypes::fp32};
  for (const DType d : integer_dtypes())
    if (d.kind() != DTypeKind::kSign) out.push_back(d);
  return out;
}

// Integers with their tensor.
struct Integers {
  Tensor tensor;
  std::vector<int64_t> numbers;
};
Integers make(const Shape& shape, DType dtype, const std::vector<int64_t>& numbers) {
  Tensor t = Tensor::zeros(shape, dtype);
  for (int64_t r = 0; r < t.rows(); ++r)
    for (int64_t c = 0; c < t.cols(); ++c) {
      const int64_t q = numbers[static_cast<size_t>(r * t.cols() + c)];
      char* row = static_cast<char*>(t.data()) + r * t.stride();
      if (dtype == dtypes::int64)
        reinterpret_cast<int64_t*>(row)[c] = q;
      else if (dtype == dtypes::int32)
        reinterpret_cast<int32_t*>(row)[c] = static_cast<int32_t>(q);
      else
        store_raw(row, c, dtype.bits(), static_cast<uint32_t>(encode_int(dtype.info(), q)));
    }
  return {t, numbers};
}
// From the whole range, its ends often; `tame` keeps wide dtypes within 2^20.
Integers random_integers(Rng& rng, const Shape& shape, DType dtype, bool tame) {
  const DTypeInfo& info = dtype.info();
  const bool wide = dtype.bits() > 8;
  const int64_t lo = wide && tame ? -(1 << 20) : info.qmin, hi = wide && tame ? 1 << 20 : info.qmax;
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    int64_t q = draw(rng, lo, hi);
    if (draw(rng, 0, 9) == 0) q = draw(rng, 0, 1) == 0 ? lo : hi;
    if (info.kind == DTypeKind::kSign && q == 0) q = 1;
    numbers.push_back(q);
  }
  return make(shape, dtype, numbers);
}

// The bits that out_dtype must write, and whether it must flag.
struct Expected {
  std::vector<int64_t> integers;
  std::vector<float> floats;
  bool saturated = false;
  void add(Int128 exact, DType dtype) {
    if (dtype == dtypes::fp32) {
      floats.push_back(static_cast<float>(exact));
      return;
    }
    const DTypeInfo& info = dtype.info();
    saturated = saturated || exact < info.qmin || exact > info.qmax;
    integers.push_back(static_cast<int64_t>(exact < info.qmin ? info.qmin : exact > info.qmax ? info.qmax : exact));
  }
};

std::vector<int64_t> integers_of(const Tensor& t) {
  std::vector<int64_t> out(static_cast<size_t>(t.numel()));
  for (int64_t r = 0; r < t.rows(); ++r)
    unpack_row(t.dtype(), static_cast<const char*>(t.data()) + r * t.stride(), 0, t.cols(), out.data() + r * t.cols());
  return out;
}

std::string compare(const Tensor& got, const Expected& expected, DType dtype, uint32_t flag) {
  if (got.dtype() != dtype) return "dtype";
  if (dtype == dtypes::fp32) {
    for (int64_t i = 0; i < got.numel(); ++i)
      if (got.as<float>()[i] != expected.floats[static_cast<size_t>(i)]) return concat("element ", i);
  } else if (integers_of(got) != expected.integers) {
    return "integers";
  }
  // Pad bits are zero.
  if (dtype.is_code() && (dtype.bits() * got.cols()) % 64 != 0)
    for (int64_t r = 0; r < got.rows(); ++r) {
      uint64_t last = 0;
      std::memcpy(&last, static_cast<const char*>(got.data()) + (r + 1) * got.stride() - 8, 8);
      if (last >> ((dtype.bits() * got.cols()) % 64) != 0) return "pad bits";
    }
  return (flag == kFlagSaturated) == expected.saturated && (flag & ~kFlagSaturated) == 0 ? "" : "flag";
}

Int128 dot(const Integers& a, const Integers& b, int64_t i, int64_t j, int64_t k, bool b_transposed, int64_t n) {
  Int128 sum = 0;
  for (int64_t t = 0; t < k; ++t)
    sum += static_cast<Int128>(a.numbers[static_cast<size_t>(i * k + t)]) *
           b.numbers[static_cast<size_t>(b_transposed ? t * n + j : j * k + t)];
  return sum;
}

std::string check_product(Rng& rng, bool transposed, DType da, DType db, DType dtype) {
  const int64_t m = draw_size(rng, 70), n = draw_size(rng, 150), k = draw_size(rng, 400);
  const bool tame = draw(rng, 0, 1) == 0 || (da == dtypes::int64 && db == dtypes::int64);
  const Integers a = random_integers(rng, {m, k}, da, tame),
                 b = random_integers(rng, transposed ? Shape{k, n} : Shape{n, k}, db, tame);
  Expected expected;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) expected.add(dot(a, b, i, j, k, transposed, n), dtype);
  const FlagWord word;
  uint32_t& flag = *word.word();
  const Tensor got =
      out_dtype(transposed ? IntegerOp::matmul : IntegerOp::linear, dtype, Var(a.tensor), Var(b.tensor), &flag).value();
  const std::string wrong = got.shape() == Shape{m, n} ? compare(got, expected, dtype, flag) : "shape";
  return wrong.empty() ? "" : concat(wrong, ": a ", a.tensor, ", b ", b.tensor, ", as ", dtype);
}

std::string check_pointwise(Rng& rng, DType da, DType db, DType dtype) {
  const int64_t columns = draw_size(rng, 200), rows = draw_size(rng, 6);
  const Shape shape = draw(rng, 0, 2) == 0   ? Shape{columns}
                      : draw(rng, 0, 1) == 0 ? Shape{rows, columns}
                                             : Shape{2, rows, columns};
  const bool product = draw(rng, 0, 1) == 0;
  const Integers a = random_integers(rng, shape, da, false), b = random_integers(rng, shape, db, false);
  Expected expected;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    const Int128 x = a.numbers[i], y = b.numbers[i];
    expected.add(product ? x * y : x + y, dtype);
  }
  const FlagWord word;
  uint32_t& flag = *word.word();
  const Tensor got =
      out_dtype(product ? IntegerOp::mul : IntegerOp::add, dtype, Var(a.tensor), Var(b.tensor), &flag).value();
  const std::string wrong = got.shape() == shape ? compare(got, expected, dtype, flag) : "shape";
  return wrong.empty() ? "" : concat(wrong, ": a ", a.tensor, ", b ", b.tensor, ", as ", dtype);
}

}  // namespace

TEST_CASE("matmul and linear of every pair of integer dtypes are exact, for any shape and result dtype") {
  Rng rng(2024);
  const std::vector<DType> all = integer_dtypes(), results = result_dtypes();
  const int pairs = static_cast<int>(all.size() * all.size()), count = shape_count(2 * pairs);
  for (int i = 0; i < count; ++i) {
    const auto pair = static_cast<size_t>(i % pairs);
    const DType any = results[static_cast<size_t>(draw(rng, 0, static_cast<int64_t>(results.size()) - 1))];
    for (const bool transposed : {false, true}) {
      // int32 is what people ask for: every pair gives it at least once by linear and once by matmul.
      const DType dtype = i / pairs % 2 == 0 ? dtypes::int32 : any;
      const std::string wrong = check_product(rng, transposed, all[pair / all.size()], all[pair % all.size()], dtype);
      if (!wrong.empty()) FAIL_CHECK(wrong);
    }
  }
}

TEST_CASE("mul and add of every pair of integer dtypes are exact, for any shape and result dtype") {
  Rng rng(2025);
  const std::vector<DType> all = integer_dtypes(), results = result_dtypes();
  const int pairs = static_cast<int>(all.size() * all.size()), count = shape_count(2 * pairs);
  for (int i = 0; i < count; ++i) {
    const auto pair = static_cast<size_t>(i % pairs);
    const DType dtype = results[static_cast<size_t>(draw(rng, 0, static_cast<int64_t>(results.size()) - 1))];
    const std::string wrong = check_pointwise(rng, all[pair / all.size()], all[pair % all.size()], dtype);
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
}

TEST_CASE("sums beyond 64 and 128 bits saturate, cancel and round as the exact number does") {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  const auto run = [](std::vector<int64_t> a, std::vector<int64_t> b, DType dtype, uint32_t* flag) {
    const auto k = static_cast<int64_t>(a.size());
    return out_dtype(IntegerOp::linear, dtype, Var(make({1, k}, dtypes::int64, a).tensor),
                     Var(make({1, k}, dtypes::int64, b).tensor), flag)
        .value();
  };
  const FlagWord word;
  uint32_t& flag = *word.word();
  // 4 * 2^126 = 2^128: float has no such number, int64 saturates.
  CHECK(run({kMin, kMin, kMin, kMin}, {kMin, kMin, kMin, kMin}, dtypes::int64, &flag).as<int64_t>()[0] == kMax);
  CHECK(flag == kFlagSaturated);
  CHECK(std::isinf(run({kMin, kMin, kMin, kMin}, {kMin, kMin, kMin, kMin}, dtypes::fp32, nullptr).as<float>()[0]));
  CHECK(run({kMin, kMin, kMin}, {kMin, kMin, kMin}, dtypes::fp32, nullptr).as<float>()[0] == 0x3p126f);
  CHECK(run({kMin, kMin, kMin}, {kMax, kMax, kMax}, dtypes::fp32, nullptr).as<float>()[0] == -0x3p126f);
  flag = 0;
  CHECK(run({kMin, kMin}, {kMax, kMax}, dtypes::int64, &flag).as<int64_t>()[0] == kMin);
  CHECK(flag == kFlagSaturated);
  flag = 0;
  // Parts far outside that cancel.
  CHECK(run({kMin, kMin, kMin, kMin, 7}, {kMin, kMin, kMax, kMax, 3}, dtypes::int64, &flag).as<int64_t>()[0] == kMax);
  CHECK(flag == kFlagSaturated);
  flag = 0;
  CHECK(run({kMin, kMin, kMin, 7}, {5, -5, 0, -3}, dtypes::int64, &flag).as<int64_t>()[0] == -21);
  CHECK(run({kMax, kMax, 1}, {kMax, -kMax, -1}, dtypes::int8, &flag).elements() == std::vector<double>{-1});
  CHECK(run({kMax, 1}, {1, -1}, dtypes::int64, &flag).as<int64_t>()[0] == kMax - 1);
  CHECK(run({kMin}, {1}, dtypes::int64, &flag).as<int64_t>()[0] == kMin);
  CHECK(flag == 0);
  // 2^24 + 1 is a tie, 2^24 + 1 + 2^-k is not: one unit of the low part decides.
  CHECK(run({int64_t{1} << 62, 1}, {(int64_t{1} << 25) + 2, 0}, dtypes::fp32, nullptr).as<float>()[0] == 0x1p87f);
  CHECK(run({int64_t{1} << 62, 1}, {(int64_t{1} << 25) + 2, 1}, dtypes::fp32, nullptr).as<float>()[0] ==
        0x1p87f + 0x1p64f);
  // The same tie at 2^126, where the low part is beyond the number that is rounded.
  for (const int64_t unit : {0, 1})
    CHECK(run({kMin, int64_t{1} << 62, 1}, {kMin, int64_t{1} << 40, unit}, dtypes::fp32, nullptr).as<float>()[0] ==
          0x1p126f + static_cast<float>(unit) * 0x1p103f);
}

TEST_CASE("a result that fits leaves the flag alone, and no flag is needed to saturate") {
  const Tensor a = make({1, 3}, dtypes::int8, {100, -128, 1}).tensor, b = make({1, 3}, dtypes::int8, {27, 0, 1}).tensor;
  const FlagWord word;  // in memory of the device
  uint32_t& flag = *word.word();
  flag = 1u << 7;
  CHECK(out_dtype(IntegerOp::add, dtypes::int8, Var(a), Var(b), &flag).value().elements() ==
        std::vector<double>{127, -128, 2});
  CHECK(flag == 1u << 7);
  CHECK(out_dtype(IntegerOp::mul, dtypes::uint4, Var(a), Var(b)).value().elements() == std::vector<double>{15, 0, 1});
  CHECK(out_dtype(IntegerOp::mul, dtypes::ternary, Var(a), Var(b), &flag).value().elements() ==
        std::vector<double>{1, 0, 1});
  CHECK(flag == ((1u << 7) | kFlagSaturated));
}

TEST_CASE("gradients of products are those of the numbers, in the dtype that the edge asks for") {
  const std::vector<std::pair<DType, DType>> pairs = {{dtypes::int8, dtypes::int4},
                                                      {dtypes::uint8, dtypes::ternary},
                                                      {dtypes::bint1, dtypes::bint1},
                                                      {dtypes::int32, dtypes::int1},
                                                      {dtypes::int64, dtypes::uint3}};
  uint64_t seed = 1000;
  for (const auto& [da, db] : pairs)
    for (const bool transposed : {false, true})
      for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
        const int64_t m = 5, n = 7, k = 70;
        const Tensor a = random_tensor({m, k}, da, ++seed),
                     b = random_tensor(transposed ? Shape{k, n} : Shape{n, k}, db, ++seed),
                     g = random_tensor({m, n}, dtypes::fp32, ++seed);
        AccumulateSink sa, sb;
        Tape tape;
        const Var y = out_dtype(transposed ? IntegerOp::matmul : IntegerOp::linear, dtypes::int32,
                                tape.leaf(a, &sa, grad), tape.leaf(b, &sb, grad));
        tape.backward({y}, {g});
        const auto va = a.elements(), vb = b.elements(), vg = g.elements();
        const auto at_b = [&](int64_t kk, int64_t j) {
          return vb[static_cast<size_t>(transposed ? kk * n + j : j * k + kk)];
        };
        const Product ga = product(
            m, k, n, [&](int64_t i, int64_t j) { return vg[static_cast<size_t>(i * n + j)]; },
            [&](int64_t kk, int64_t j) { return at_b(kk, j); });
        const Product gb = product(
            transposed ? k : n, transposed ? n : k, m,
            [&](int64_t r, int64_t i) {
              return transposed ? va[static_cast<size_t>(i * k + r)] : vg[static_cast<size_t>(i * n + r)];
            },
            [&](int64_t c, int64_t i) {
              return transposed ? vg[static_cast<size_t>(i * n + c)] : va[static_cast<size_t>(i * k + c)];
            });
        REQUIRE(sa.grad().dtype() == grad);
        REQUIRE(sb.grad().shape() == b.shape());
        if (grad == dtypes::fp32) {
          CHECK(worst(sa.grad(), ga, n) <= 1);
          CHECK(worst(sb.grad(), gb, m) <= 1);
        } else {
          for (size_t i = 0; i < ga.value.size(); ++i)
            if (std::fabs(sa.grad().elements()[i] - ga.value[i]) >
                0x1.02p-8 * std::fabs(ga.value[i]) + 1e-4 * ga.magnitude[i])
              FAIL("element " << i << " in bf16");
        }
      }
}

TEST_CASE("gradients of all four ops equal those of the op in double, which passes the gradient check") {
  for (const IntegerOp op : {IntegerOp::matmul, IntegerOp::linear, IntegerOp::mul, IntegerOp::add}) {
    const bool is_product = op == IntegerOp::matmul || op == IntegerOp::linear, transposed = op == IntegerOp::matmul;
    const Tensor a = random_tensor({4, 6}, dtypes::int5, 1100),
                 b = random_tensor(transposed ? Shape{6, 3} : Shape{is_product ? 3 : 4, 6}, dtypes::uint4, 1101),
                 g = random_tensor({4, is_product ? 3 : 6}, dtypes::fp32, 1102);
    const auto in_double = [](const Tensor& t) { return Tensor::from_elements(t.shape(), dtypes::fp64, t.elements()); };
    // The double product wants b as [n,k].
    const Tensor a64 = in_double(a), b64 = in_double(transposed ? transpose(b) : b);
    const CheckedFunction fn = [&](const std::vector<Var>& v) {
      return is_product ? linear(v[0], v[1]) : op == IntegerOp::mul ? mul(v[0], v[1]) : add(v[0], v[1]);
    };
    CHECK(gradcheck(fn, {a64, b64}) == "");
    AccumulateSink sa, sb, da, db;
    on_cpu([&] {
      Tape tape;
      tape.backward({fn({tape.leaf(here(a64), &da, dtypes::fp64), tape.leaf(here(b64), &db, dtypes::fp64)})},
                    {in_double(g)});
    });
    Tape tape;
    tape.backward({out_dtype(op, dtypes::int32, tape.leaf(a, &sa, dtypes::fp32), tape.leaf(b, &sb, dtypes::fp32))},
                  {g});
    const Tensor gb = on_cpu([&] { return transposed ? transpose(db.grad()) : db.grad(); });
    for (const auto& [got, want] : {std::pair{sa.grad(), da.grad()}, std::pair{sb.grad(), gb}})
      for (size_t e = 0; e < static_cast<size_t>(got.numel()); ++e)
        if (std::fabs(got.elements()[e] - want.elements()[e]) > 1e-4)
          FAIL("op " << static_cast<int>(op) << " element " << e);
  }
}

TEST_CASE("gradients of mul and add: g times the other's numbers, and g") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    for (const DType d : {dtypes::int3, dtypes::uint8, dtypes::bint1, dtypes::int32, dtypes::int64}) {
      const Tensor a = random_tensor({3, 2, 35}, d, 1200), b = random_tensor({3, 2, 35}, dtypes::int4, 1201),
                   g = random_tensor({3, 2, 35}, dtypes::fp32, 1202);
      for (const IntegerOp op : {IntegerOp::mul, IntegerOp::add}) {
        AccumulateSink sa, sb;
        Tape tape;
        tape.backward({out_dtype(op, dtypes::int8, tape.leaf(a, &sa, grad), tape.leaf(b, &sb, grad))}, {g});
        for (int64_t i = 0; i < g.numel(); ++i) {
          const auto e = static_cast<size_t>(i);
          float ga = g.as<float>()[i], gb = ga;
          if (op == IntegerOp::mul) {
            ga *= static_cast<float>(b.elements()[e]);
            gb *= static_cast<float>(a.elements()[e]);
          }
          if (grad == dtypes::bf16) {
            ga = bf16_to_float(bf16_from_float(ga));
            gb = bf16_to_float(bf16_from_float(gb));
          }
          if (sa.grad().elements()[e] != ga || sb.grad().elements()[e] != gb) FAIL("element " << i << " of " << d);
          if (i > 20) break;
        }
      }
    }
}

TEST_CASE("row views of codes multiply as their rows") {
  const Tensor a = random_tensor({9, 21}, dtypes::int4, 1300), b = random_tensor({5, 21}, dtypes::uint2, 1301);
  const Tensor full = out_dtype(IntegerOp::linear, dtypes::int8, Var(a), Var(b)).value(),
               part = out_dtype(IntegerOp::linear, dtypes::int8, Var(a.row_slice(2, 6)), Var(b)).value();
  CHECK(part.elements() == full.row_slice(2, 6).clone(MemoryKind::kActivation).elements());
}

TEST_CASE("out_dtype refuses scales, floats, results it cannot write and shapes that do not fit") {
  const Tensor a = random_tensor({2, 3}, dtypes::int8, 1400), b = random_tensor({3, 4}, dtypes::int4, 1401);
  const auto error = [](IntegerOp op, DType dtype, const Tensor& x, const Tensor& y) {
    return error_of([&] { out_dtype(op, dtype, Var(x), Var(y)); });
  };
  CHECK(error(IntegerOp::matmul, dtypes::int32, random_codes({2, 3}, dtypes::int8, 1402), b) ==
        "[out_dtype] a [2,3] int8 has scales (made): out_dtype computes on bare codes. Use `linear` for values, or "
        "Tensor::without_quant.");
  CHECK(contains(error(IntegerOp::matmul, dtypes::int32, a, random_tensor({3, 4}, dtypes::fp32, 1403)),
                 "[out_dtype] b: got [3,4] fp32"));
  CHECK(contains(error(IntegerOp::matmul, dtypes::int32, a, random_tensor({3, 4}, dtypes::nf4, 1404)),
                 "expected an int, uint or sign dtype"));
  CHECK(contains(error(IntegerOp::matmul, dtypes::bint1, a, b), "dtype of the result: got bint1"));
  CHECK(contains(error(IntegerOp::matmul, dtypes::bf16, a, b), "dtype of the result: got bf16"));
  CHECK(error(IntegerOp::matmul, dtypes::int32, b, a) ==
        "[out_dtype] matmul: got a [3,4] int4, b [2,3] int8, expected [m,k] and [k,n]");
  CHECK(contains(error(IntegerOp::linear, dtypes::int32, a, b), "expected [m,k] and [n,k]"));
  CHECK(contains(error(IntegerOp::add, dtypes::int32, a, b), "shapes differ"));
  CHECK(contains(error(IntegerOp::matmul, dtypes::int32, random_tensor({1, 2, 3}, dtypes::int8, 1405), b),
                 "expected [m,k] and [k,n]"));
}
