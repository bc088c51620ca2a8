// Family pointwise against loops spelled out here, with ==: every function, ISA and number of threads, any order of
// axes.
#include "kernels/pointwise.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/map/pointwise.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/pointwise_problem.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

// Floats in fp32 or bf16, with zeros of both signs, subnormal, huge and infinite ones between.
class Floats {
 public:
  Floats(int64_t n, DType dtype, uint32_t seed) : dtype_(dtype) {
    static constexpr float kSpecial[] = {0.0f, -0.0f, 1e-45f, 3e38f, -3e38f, std::numeric_limits<float>::infinity()};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (int64_t i = 0; i < n; ++i) {
      const float v = random() % 16 == 0 ? kSpecial[random() % std::size(kSpecial)] : normal(random);
      wide_.push_back(dtype == dtypes::bf16 ? bf16_to_float(bf16_from_float(v)) : v);
      narrow_.push_back(bf16_from_float(v));
    }
  }
  void* data() { return dtype_ == dtypes::bf16 ? static_cast<void*>(narrow_.data()) : wide_.data(); }
  DType dtype() const { return dtype_; }
  float at(int64_t i) const {
    const auto k = static_cast<size_t>(i);
    return dtype_ == dtypes::bf16 ? bf16_to_float(narrow_[k]) : wide_[k];
  }
  void set(int64_t i, float v) {
    narrow_[static_cast<size_t>(i)] = bf16_from_float(v);
    wide_[static_cast<size_t>(i)] = v;
  }
  bool operator==(const Floats& other) const {
    for (size_t i = 0; i < wide_.size(); ++i) {
      const float a = at(static_cast<int64_t>(i)), b = other.at(static_cast<int64_t>(i));
      if (std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b) && !(std::isnan(a) && std::isnan(b))) return false;
    }
    return true;
  }

 private:
  DType dtype_;
  std::vector<float> wide_;
  std::vector<uint16_t> narrow_;
};

float expected_value(PointwiseOp op, float a, float b) {
  return op == PointwiseOp::add ? a + b : op == PointwiseOp::sub ? a - b : op == PointwiseOp::mul ? a * b : a / b;
}

PointwiseArgs args_of(const PointwiseProblem& p, PointwiseOp op) {
  PointwiseArgs args;
  args.op = op;
  std::copy(p.size.begin(), p.size.end(), args.size);
  std::copy(p.arrays[0].step.begin(), p.arrays[0].step.end(), args.a.step);
  std::copy(p.arrays[1].step.begin(), p.arrays[1].step.end(), args.b.step);
  std::copy(p.arrays[2].step.begin(), p.arrays[2].step.end(), args.y.step);
  return args;
}

// The functor that devices run, on the CPU.
void run_as_map(const PointwiseArgs& args) {
  const Walk<3> walk = merged_walk<3>(args.size, {args.a.step, args.b.step, args.y.step});
  const maps::PointwiseRuns runs{args.op,
                                 maps::places_of(walk),
                                 args.a.data,
                                 args.b.data,
                                 args.y.data,
                                 args.a.dtype == dtypes::bf16,
                                 args.b.dtype == dtypes::bf16,
                                 args.y.dtype == dtypes::bf16};
  run_map(runs, runs.places.runs());
}

constexpr DType kFloatDtypes[] = {dtypes::fp32, dtypes::bf16};

}  // namespace

TEST_CASE("a function of two arrays is one rounded operation an element, in any order of axes and with repeated ones") {
  REQUIRE(static_cast<int>(PointwiseOp::kCount) == 4);
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const PointwiseProblem p = drawn_problem(seed);
    const auto op = static_cast<PointwiseOp>(seed % 4);
    Floats a(p.arrays[0].elements, kFloatDtypes[seed / 4 % 2], seed),
        b(p.arrays[1].elements, kFloatDtypes[seed / 8 % 2], seed + 1);
    const Floats before(p.arrays[2].elements, kFloatDtypes[seed / 16 % 2], seed + 2);
    Floats expected = before;
    p.each([&](const auto& i) {
      expected.set(p.arrays[2].at(i), expected_value(op, a.at(p.arrays[0].at(i)), b.at(p.arrays[1].at(i))));
    });
    PointwiseArgs args = args_of(p, op);
    args.a.data = a.data();
    args.b.data = b.data();
    args.a.dtype = a.dtype();
    args.b.dtype = b.dtype();
    args.y.dtype = before.dtype();
    INFO("problem " << seed);
    everywhere([&] {
      Floats y = before;
      args.y.data = y.data();
      pointwise(args);
      CHECK(y == expected);
    });
    Floats y = before;
    args.y.data = y.data();
    run_as_map(args);
    CHECK(y == expected);
  }
}

TEST_CASE("the result of a function may be its first operand") {
  everywhere([] {
    for (const DType dtype : kFloatDtypes) {
      Floats x(3 * 1500, dtype, 1), b(1500, dtypes::fp32, 2);
      Floats expected = x;
      for (int64_t i = 0; i < 3 * 1500; ++i) expected.set(i, x.at(i) * b.at(i % 1500));
      PointwiseArgs args;
      args.op = PointwiseOp::mul;
      args.size[2] = 3;
      args.size[3] = 1500;
      args.a = {x.data(), dtype, {0, 0, 1500, 1}};
      args.b = {b.data(), dtypes::fp32, {0, 0, 0, 1}};
      args.y = {x.data(), dtype, {0, 0, 1500, 1}};
      pointwise(args);
      CHECK(x == expected);
    }
  });
}

// [cpu]: doubles
TEST_CASE("functions of doubles are those of C++", "[cpu]") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const PointwiseProblem p = drawn_problem(seed);
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto drawn = [&](int64_t n) {
      std::vector<double> x;
      for (int64_t i = 0; i < n; ++i) x.push_back(normal(random));
      return x;
    };
    const std::vector<double> a = drawn(p.arrays[0].elements), b = drawn(p.arrays[1].elements);
    std::vector<double> y(static_cast<size_t>(p.arrays[2].elements)), expected = y;
    PointwiseArgs args = args_of(p, PointwiseOp::div);
    args.a.data = a.data();
    args.b.data = b.data();
    args.y.data = y.data();
    args.a.dtype = args.b.dtype = args.y.dtype = dtypes::fp64;
    pointwise(args);
    p.each([&](const auto& i) {
      expected[static_cast<size_t>(p.arrays[2].at(i))] =
          a[static_cast<size_t>(p.arrays[0].at(i))] / b[static_cast<size_t>(p.arrays[1].at(i))];
    });
    CHECK(y == expected);
  }
}

TEST_CASE("a copy moves elements of any size bit for bit, in any order of axes, and touches nothing else") {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const PointwiseProblem p = drawn_problem(seed);
    const DType dtype = std::array{dtypes::int8, dtypes::bf16, dtypes::int32, dtypes::int64, dtypes::fp32}[seed % 5];
    const auto bytes = static_cast<size_t>(dtype.bits() / 8);
    std::mt19937 random(seed);
    std::vector<uint8_t> x(static_cast<size_t>(p.arrays[0].elements) * bytes);
    std::vector<uint8_t> before(static_cast<size_t>(p.arrays[2].elements) * bytes);
    for (uint8_t& v : x) v = static_cast<uint8_t>(random());
    for (uint8_t& v : before) v = static_cast<uint8_t>(random());
    std::vector<uint8_t> expected = before;
    p.each([&](const auto& i) {
      std::memcpy(expected.data() + static_cast<size_t>(p.arrays[2].at(i)) * bytes,
                  x.data() + static_cast<size_t>(p.arrays[0].at(i)) * bytes, bytes);
    });
    StridedCopyArgs args;
    std::copy(p.size.begin(), p.size.end(), args.size);
    args.x = {x.data(), dtype, {}};
    args.y.dtype = dtype;
    std::copy(p.arrays[0].step.begin(), p.arrays[0].step.end(), args.x.step);
    std::copy(p.arrays[2].step.begin(), p.arrays[2].step.end(), args.y.step);
    INFO("problem " << seed);
    everywhere([&] {
      std::vector<uint8_t> y = before;
      args.y.data = y.data();
      strided_copy(args);
      CHECK(y == expected);
    });
    std::vector<uint8_t> y = before;
    const Walk<2> walk = merged_walk<2>(args.size, {args.x.step, args.y.step});
    const maps::CopyRuns runs{maps::places_of(walk), x.data(), y.data(), dtype.bits() / 8, maps::CopyRuns::kBits};
    run_map(runs, runs.places.runs());
    CHECK(y == expected);
  }
}

TEST_CASE("a large transposition goes by squares and is exact at their edges") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{31, 33}, {32, 32}, {65, 97}, {600, 513}}) {
    std::vector<uint32_t> x(static_cast<size_t>(3 * rows * cols)), y(x.size(), 7);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint32_t>(i * 2654435761u);
    StridedCopyArgs args;
    args.size[1] = 3;
    args.size[2] = cols;
    args.size[3] = rows;
    args.x = {x.data(), dtypes::int32, {0, rows * cols, 1, cols}};
    args.y = {y.data(), dtypes::int32, {0, rows * cols, rows, 1}};
    strided_copy(args);
    int64_t wrong = 0;
    for (int64_t k = 0; k < 3; ++k)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          wrong +=
              y[static_cast<size_t>((k * cols + c) * rows + r)] != x[static_cast<size_t>((k * rows + r) * cols + c)];
    CHECK(wrong == 0);
  }
}

TEST_CASE("a copy converts fp32 to bf16 to nearest even, and bf16 to fp32 exactly") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const PointwiseProblem p = drawn_problem(seed);
    const bool narrow = seed % 2 == 0;
    Floats x(p.arrays[0].elements, narrow ? dtypes::fp32 : dtypes::bf16, seed);
    const Floats before(p.arrays[2].elements, narrow ? dtypes::bf16 : dtypes::fp32, seed + 1);
    Floats expected = before;
    p.each([&](const auto& i) { expected.set(p.arrays[2].at(i), x.at(p.arrays[0].at(i))); });
    StridedCopyArgs args;
    std::copy(p.size.begin(), p.size.end(), args.size);
    args.x.data = x.data();
    args.x.dtype = x.dtype();
    args.y.dtype = before.dtype();
    std::copy(p.arrays[0].step.begin(), p.arrays[0].step.end(), args.x.step);
    std::copy(p.arrays[2].step.begin(), p.arrays[2].step.end(), args.y.step);
    everywhere([&] {
      Floats y = before;
      args.y.data = y.data();
      strided_copy(args);
      CHECK(y == expected);
    });
  }
}

TEST_CASE("axes that are contiguous in every array are merged") {
  const int64_t size[] = {2, 3, 4, 5}, dense[] = {60, 20, 5, 1}, repeated[] = {0, 0, 5, 1}, apart[] = {80, 20, 5, 1};
  const Walk<1> one = merged_walk<1>(size, {dense});
  CHECK(one.inner() == 120);
  CHECK(one.outer() == 1);
  const Walk<2> two = merged_walk<2>(size, {dense, repeated});
  CHECK(two.inner() == 20);
  CHECK(two.size[2] == 6);
  CHECK(two.step[1][2] == 0);
  WalkCursor<2> cursor(two, 4);
  cursor.next();
  CHECK((cursor.start(0) == 100 && cursor.start(1) == 0));
  const Walk<2> gap = merged_walk<2>(size, {dense, apart});
  CHECK(gap.inner() == 60);
  CHECK(WalkCursor<2>(gap, 1).start(1) == 80);
}

}  // namespace bitgrad::test
