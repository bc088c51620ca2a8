// Products by the cuBLASLt of this machine: floats against sums in double, int8 against sums of 128 bits.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "cuda/gemm_kernels_check.h"
#include "cuda/kernels/gemm/library/cublaslt.h"
#include "kernels/gemm_float_problem.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

constexpr int64_t kFree[] = {1, 4, 7, 16, 33, 64, 100, 128, 140, 256};
constexpr int64_t kDeep[] = {1, 4, 15, 64, 96, 200, 512};

bool skipped_without_cublaslt() {
  const DeviceGuard guard(Device::cuda());
  if (cuda::gemm::cublaslt() == nullptr) WARN("skipped: " << cuda::gemm::describe_cublaslt());
  return cuda::gemm::cublaslt() == nullptr;
}

double element(DType dtype, const std::vector<uint8_t>& c, int64_t at) {
  if (dtype == dtypes::fp32) {
    float x;
    std::memcpy(&x, &c[static_cast<size_t>(4 * at)], 4);
    return x;
  }
  uint16_t word;
  std::memcpy(&word, &c[static_cast<size_t>(2 * at)], 2);
  return bf16_to_float(word);
}

// Elements beyond what sums of fp32 in any order may be off. Tensor cores cut several terms where one is rounded.
int64_t wrong_elements(const test::Problem& p, const std::vector<uint8_t>& c) {
  const double unit = p.a.dtype == dtypes::fp32 ? 0x1p-24 : 3 * 0x1p-24;
  int64_t wrong = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = i * (p.n + p.gap) + j;
      double sum = p.accumulate ? element(p.c_dtype, p.c_before, at) : 0;
      if (!p.bias.empty()) sum += p.bias[static_cast<size_t>(j)];
      double magnitude = std::fabs(sum);
      for (int64_t k = 0; k < p.k; ++k) {
        const double term = double{p.a_at(i, k)} * p.b_at(j, k);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double rounding = p.c_dtype == dtypes::bf16 ? std::fabs(sum) * 0x1p-8 : 0;
      wrong += !(std::fabs(element(p.c_dtype, c, at) - sum) <=
                 static_cast<double>(p.k + 16) * unit * magnitude * 1.01 + rounding);
    }
  return wrong;
}

TEST_CASE("gemm on CUDA: floats by cuBLASLt stay within the bound of fp32 sums") {
  if (skipped_without_cublaslt()) return;
  std::mt19937 rng(71);
  const int64_t before = cuda::detail::launches("gemm_f32_chain512_simt");
  int taken = 0;
  for (const char* name : {"gemm_f32_cublaslt", "gemm_bf16_cublaslt"}) {
    const GemmKernel& kernel = test::cuda_kernel(name);
    const DType in = name[5] == 'f' ? dtypes::fp32 : dtypes::bf16;
    for (int i = 0; i < test::shape_count(40); ++i) {
      test::Problem p(in, rng() % 2 == 0, in, rng() % 2 == 0, kFree[rng() % 10], kFree[rng() % 10], kDeep[rng() % 7],
                      rng);
      if (in == dtypes::bf16 && rng() % 2 == 0) p.c_dtype = dtypes::bf16;
      if (p.c_dtype == dtypes::fp32 && rng() % 2 == 0) p.add_bias(rng);
      p.accumulate = rng() % 3 == 0;
      if (rng() % 2 == 0) p.gap = 0;
      std::vector<uint8_t> c = p.c_before;
      const GemmArgs args = p.args(c.data());
      INFO(name << ", m " << p.m << " n " << p.n << " k " << p.k << (p.a_k_major ? ", a k-major" : "")
                << (p.b_k_major ? ", b k-major" : "") << " to " << p.c_dtype << ", accumulate " << p.accumulate
                << ", gap " << p.gap);
      REQUIRE(kernel.supports(args));
      ++taken;
      test::run_on_device(kernel, args, static_cast<int64_t>(rng() % 3) * 8);
      CHECK(wrong_elements(p, c) == 0);
    }
  }
  // What the library has no algorithm for runs in the reference kernel: the exception.
  CHECK(cuda::detail::launches("gemm_f32_chain512_simt") - before < taken / 2);
}

TEST_CASE("gemm on CUDA: int8 by cuBLASLt is exact") {
  if (skipped_without_cublaslt()) return;
  const auto shape_of = [](test::Rng& rng) {
    constexpr int64_t kMultiples[] = {4, 16, 32, 64, 100, 128, 140, 256};
    return test::Shape{kFree[test::uniform_int(rng, 0, 9)], kMultiples[test::uniform_int(rng, 0, 7)],
                       kMultiples[test::uniform_int(rng, 0, 7)]};
  };
  test::check_cuda_row("gemm_s8_s8_cublaslt", shape_of, test::shape_count(40), 72, {{dtypes::int8, dtypes::int8}},
                       false);
}

}  // namespace
}  // namespace bitgrad
