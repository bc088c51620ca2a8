// The float rows of the tile unit: bf16 x bint1 inside the bound of any order of additions, digits equal to their
// definition in docs/numerics.md section 4 bit for bit and below the error of a plain fp32 sum.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "bitgrad/base/parallel.h"
#include "kernels/gemm_amx_kernels.h"
#include "kernels/gemm_float_problem.h"
#include "support/catch.h"
#include "support/needs.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::amx_kernels;
using test::Problem;

uint64_t noise() {
  static std::mt19937_64 rng(98);
  return rng();
}

std::vector<uint8_t> run(const GemmKernel& kernel, const Problem& problem) {
  std::vector<uint8_t> c = problem.c_before;
  GemmArgs args = problem.args(c.data());
  std::vector<uint64_t> derived;
  test::derive_noisy(args.b, kernel.b_layout, args.n, args.k, derived, &noise);
  kernel.run(args);
  return c;
}

bool takes(const GemmKernel& kernel, const Problem& problem) {
  return kernel.supports(problem.args(nullptr)) && (kernel.b_layout == layouts::canonical || !problem.b_k_major);
}

// The definition of orders digits3 and digits2.
std::vector<float> digit_sums(const Problem& p, int parts) {
  const bool into_a = p.fold && p.b.map.scale != nullptr && !p.scale_by_n();
  const std::vector<float> x = p.a_values(into_a);
  const double upper = 127 * (std::pow(256.0, parts) - 1) / 255;
  std::vector<float> sums;
  for (int64_t i = 0; i < p.m; ++i) {
    const float* row = x.data() + i * p.k;
    double a = 0;
    bool finite = true;
    for (int64_t k = 0; k < p.k; ++k) {
      a = std::max(a, std::fabs(static_cast<double>(row[k])));
      finite = finite && std::isfinite(row[k]);
    }
    int e = -200;
    while (finite && std::rint(std::ldexp(a, -e)) > upper) ++e;
    if (a == 0) e = 0;
    std::vector<int64_t> q(static_cast<size_t>(p.k));
    for (int64_t k = 0; finite && k < p.k; ++k)
      q[static_cast<size_t>(k)] = static_cast<int64_t>(std::rint(std::ldexp(static_cast<double>(row[k]), -e)));
    for (int64_t j = 0; j < p.n; ++j) {
      int64_t digit_sum[3] = {};
      for (int64_t k = 0; k < p.k; ++k) {
        int64_t rest = q[static_cast<size_t>(k)];
        for (int part = parts - 1; part >= 0; --part) {
          const auto digit = part == 0 ? rest : static_cast<int64_t>(static_cast<int8_t>(rest & 255));
          digit_sum[part] += digit * static_cast<int64_t>(p.b_number(j, k));
          rest = (rest - digit) / 256;
        }
      }
      float t = static_cast<float>(digit_sum[parts - 1]);
      for (int part = parts - 2; part >= 0; --part)
        t = std::fma(static_cast<float>(digit_sum[part]), std::ldexp(1.0f, 8 * (parts - 1 - part)), t);
      float y = static_cast<float>(std::ldexp(static_cast<double>(t), e));
      if (!finite) y = std::numeric_limits<float>::quiet_NaN();
      if (!into_a && p.b.map.scale != nullptr) y = y * p.b_scale(j, 0);
      sums.push_back(y);
    }
  }
  return sums;
}

int check_digits(const Problem& problem) {
  int ran = 0;
  for (const SumOrder order : {SumOrder::kDigits3, SumOrder::kDigits2}) {
    std::vector<uint8_t> expected;
    for (const GemmKernel& kernel : amx_kernels(order)) {
      if (!takes(kernel, problem)) continue;
      if (expected.empty()) expected = problem.finished(digit_sums(problem, order == SumOrder::kDigits3 ? 3 : 2));
      INFO(kernel.name << " " << problem.a.dtype << (problem.a_k_major ? " k-major" : "") << " x " << problem.b.dtype
                       << (problem.b_k_major ? " k-major" : "") << " to " << problem.c_dtype << " m " << problem.m
                       << " n " << problem.n << " k " << problem.k);
      CHECK((run(kernel, problem) == expected));
      ++ran;
    }
  }
  return ran;
}

constexpr bool kOrders[][2] = {{false, false}, {false, true}, {true, false}, {true, true}};

// [cpu]: rows of the CPU
TEST_CASE("digit rows give the bits of their definition at every edge, dtype, order of storage and output", "[cpu]") {
  std::mt19937 rng(1);
  const int64_t sides[] = {0, 1, 15, 16, 17, 31, 32, 33, 48, 65}, depths[] = {0, 1, 31, 33, 63, 64, 65, 96, 128, 300};
  const DType types[] = {dtypes::bint1, dtypes::ternary, dtypes::int2, dtypes::bint1, dtypes::int8, dtypes::int1};
  const RandomStream stream{77, Purpose::kGradAccumulate, 5, 9};
  size_t count = 0;
  for (const int64_t m : sides) {
    for (const int64_t n : sides) {
      const bool* order = kOrders[count % 4];
      Problem problem(count % 3 == 1 ? dtypes::bf16 : dtypes::fp32, order[0], types[count % 6], order[1], m, n,
                      depths[(count + m) % 10], rng);
      if (count % 5 == 0) problem.b.add_parameters("scale", 1, count % 10 == 0, 1, 0, rng);
      problem.accumulate = count % 3 == 0;
      if (count % 7 == 0) problem.add_bias(rng);
      if (count % 4 == 0) problem.c_dtype = dtypes::bf16;
      if (count % 8 == 0) problem.sr = &stream;
      CHECK(check_digits(problem) >= (problem.b.map.trivial() ? 1 : 0));
      ++count;
    }
  }
}

TEST_CASE("digit rows fold a scale along k into A, apply scales along n afterwards, and work in passes over a deep k",
          "[cpu]") {
  std::mt19937 rng(2);
  for (const bool* order : kOrders) {
    for (int which = 0; which < 4; ++which) {
      Problem problem(dtypes::fp32, order[0], dtypes::bint1, order[1], 13, 33, 200, rng);
      if (which != 3) problem.b.add_parameters("scale", 1, which == 1, 1, which == 2, rng);
      problem.fold = true;
      CHECK(check_digits(problem) > 0);
    }
  }
  CHECK(check_digits(Problem(dtypes::fp32, false, dtypes::bint1, false, 5, 20, 5500, rng)) > 0);
  CHECK(check_digits(Problem(dtypes::bf16, true, dtypes::bint1, true, 33, 3, 8300, rng)) > 0);
}

float& element(Problem& p, int64_t i, int64_t k) {
  return reinterpret_cast<float*>(p.a.bytes.data() + i * p.a.stride)[k];
}

TEST_CASE("digit rows accept zeros, subnormal numbers and the largest ones, and make NaN of a row that is not finite",
          "[cpu]") {
  std::mt19937 rng(3);
  Problem problem(dtypes::fp32, false, dtypes::bint1, false, 9, 19, 70, rng);
  for (int64_t k = 0; k < 70; ++k) {
    element(problem, 0, k) = k % 2 == 0 ? 0.0f : -0.0f;
    element(problem, 1, k) = k == 3 ? 0x1p-149f : 0.0f;
    element(problem, 2, k) = std::ldexp(static_cast<float>(k) - 35, -149);
    element(problem, 3, k) = k == 7 ? std::numeric_limits<float>::max() : 1.0f;
    // The largest number just above and below where the fixed point changes.
    element(problem, 4, k) = k == 0 ? 8355711.0f : 0.5f;
    element(problem, 5, k) = k == 0 ? 8355711.5f : 0.5f;
    element(problem, 6, k) = k == 0 ? -8355712.0f : 1.5f;
  }
  CHECK(check_digits(problem) > 0);
  element(problem, 7, 69) = INFINITY;
  element(problem, 8, 0) = NAN;
  for (const GemmKernel& kernel : amx_kernels(SumOrder::kDigits3)) {
    const std::vector<uint8_t> c = run(kernel, problem);
    for (int64_t i = 0; i < 9; ++i) {
      for (int64_t j = 0; j < 19; ++j) {
        float y;
        std::memcpy(&y, &c[static_cast<size_t>(4 * (i * 22 + j))], 4);
        CHECK(std::isnan(y) == (i >= 7));
        if (i == 0) CHECK(std::bit_cast<uint32_t>(y) == 0);
      }
    }
  }
}

struct Errors {
  double square = 0, upper = 0;
  void add(double error) {
    square += error * error;
    upper = std::max(upper, std::fabs(error));
  }
};

TEST_CASE("three digits are nearer to the exact sum than a plain fp32 sum, two are within half a unit of each row",
          "[cpu]") {
  std::mt19937 rng(4);
  for (const int64_t k : {256, 1024, 4096}) {
    Problem problem(dtypes::fp32, false, dtypes::bint1, false, 32, 48, k, rng);
    const std::vector<float> x = problem.a_values(false), w = problem.b_values(false);
    for (const GemmKernel& kernel : amx_kernels(SumOrder::kDigits3)) {
      const std::vector<uint8_t> c = run(kernel, problem);
      Errors plain, digits;
      for (int64_t i = 0; i < 32; ++i) {
        double largest = 0;
        for (int64_t t = 0; t < k; ++t)
          largest = std::max(largest, std::fabs(static_cast<double>(x[static_cast<size_t>(i * k + t)])));
        for (int64_t j = 0; j < 48; ++j) {
          double exact = 0;
          float sum = 0, y;
          for (int64_t t = 0; t < k; ++t) {
            const float term = x[static_cast<size_t>(i * k + t)] * w[static_cast<size_t>(j * k + t)];
            exact += static_cast<double>(term);
            sum = sum + term;
          }
          std::memcpy(&y, &c[static_cast<size_t>(4 * (i * 51 + j))], 4);
          plain.add(static_cast<double>(sum) - exact);
          digits.add(static_cast<double>(y) - exact);
          // Half a unit of at most 2 a / Q for each term, and the roundings of the join.
          CHECK(std::fabs(static_cast<double>(y) - exact) <=
                static_cast<double>(k) * largest / 8355711 + std::fabs(exact) * 0x1p-22);
        }
      }
      INFO(kernel.name << " k " << k << " rms " << digits.square << " against " << plain.square);
      CHECK(digits.square < plain.square);
      CHECK(digits.upper < plain.upper);
    }
  }
}

TEST_CASE("bf16 rows of the tile unit stay within the bound of any order of additions", "[cpu]") {
  std::mt19937 rng(5);
  const int64_t shapes[][3] = {{1, 1, 1},    {16, 33, 31}, {17, 48, 32}, {33, 17, 33}, {65, 70, 130},
                               {32, 32, 64}, {0, 5, 3},    {5, 0, 3},    {4, 5, 0},    {40, 20, 8300}};
  int ran = 0;
  for (const GemmKernel& kernel : amx_kernels(SumOrder::kFree)) {
    for (const auto& shape : shapes) {
      for (int way = 0; way < (shape[2] > 1000 ? 2 : 8); ++way) {
        Problem problem(dtypes::bf16, kOrders[way % 4][0], dtypes::bint1, kOrders[way % 4][1], shape[0], shape[1],
                        shape[2], rng);
        if (way >= 2)
          problem.b.add_parameters("scale", 1, way % 2 && !problem.b_k_major, 1, way % 2 && problem.b_k_major, rng);
        problem.accumulate = way == 3;
        if (way == 5) problem.add_bias(rng);
        if (!takes(kernel, problem)) continue;
        INFO(kernel.name << " m " << problem.m << " n " << problem.n << " k " << problem.k << " way " << way);
        const std::vector<uint8_t> c = run(kernel, problem);
        const std::vector<Problem::Exact> exact = problem.exact();
        int bad = 0;
        for (int64_t i = 0; i < problem.m; ++i) {
          for (int64_t j = 0; j < problem.n; ++j) {
            float y;
            std::memcpy(&y, &c[static_cast<size_t>(4 * (i * (problem.n + problem.gap) + j))], 4);
            const Problem::Exact& e = exact[static_cast<size_t>(i * problem.n + j)];
            bad += !(std::fabs(static_cast<double>(y) - e.sum) <= e.bound + 0x1p-126);
          }
        }
        CHECK(bad == 0);
        ++ran;
      }
    }
  }
  CHECK(ran > 60);
}

TEST_CASE("two digits are for bf16, scales within rows are for other rows, and strict leaves digits out", "[cpu]") {
  std::mt19937 rng(6);
  Problem problem(dtypes::fp32, false, dtypes::bint1, false, 8, 9, 64, rng);
  const auto takers = [&](SumOrder order) {
    int count = 0;
    for (const GemmKernel& kernel : gemm_kernels())
      count += (kernel.needs & isa::kAmx) != 0 && kernel.order == order && kernel.supports(problem.args(nullptr));
    return count;
  };
  CHECK(takers(SumOrder::kDigits3) == 2);
  CHECK(takers(SumOrder::kDigits2) == 0);
  CHECK(takers(SumOrder::kFree) == 0);
  problem.b.add_parameters("scale", 1, 4, 16, 1, rng);
  CHECK(takers(SumOrder::kDigits3) == 0);
  Problem halves(dtypes::bf16, false, dtypes::bint1, false, 8, 9, 64, rng);
  GemmArgs args = halves.args(nullptr);
  args.b.layout = layouts::panels16;
  const BitsMode mode = bits_mode();
  set_bits_mode(BitsMode::kStrict);
  for (const SumOrder order : {SumOrder::kDigits3, SumOrder::kDigits2, SumOrder::kFree}) {
    for (const GemmKernel& kernel : amx_kernels(order)) CHECK_FALSE(kernel.usable(args));
  }
  set_bits_mode(mode);
}

TEST_CASE("oneDNN and the tile unit live together in one process and many threads", "[cpu]") {
  if (test::skipped_without(isa::kAmx)) return;
  const auto is_theirs = [](const GemmKernel& kernel) { return kernel.name == "gemm_bf16_onednn"; };
  if (std::none_of(gemm_kernels().begin(), gemm_kernels().end(), is_theirs)) {
    WARN("skipped: built without oneDNN");
    return;
  }
  // oneDNN configures and releases tiles as it likes; each thread runs both in turn.
  const auto worker = [](uint32_t seed, int* wrong) {
    std::mt19937 rng(seed);
    const GemmKernel& ours = test::gemm_kernel("gemm_s8_b1_i32_tiles_amx");
    const GemmKernel& theirs = test::gemm_kernel("gemm_bf16_onednn");
    for (int round = 0; round < 20; ++round) {
      Problem bf16(dtypes::bf16, false, dtypes::bf16, false, 64, 64, 128, rng);
      run(theirs, bf16);
      Problem codes(dtypes::int8, false, dtypes::bint1, false, 40, 50, 200, rng);
      *wrong += run(ours, codes) != codes.finished(codes.chain_sums());
    }
  };
  int wrong[4] = {};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) threads.emplace_back(worker, i, &wrong[i]);
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
}

}  // namespace
}  // namespace bitgrad
