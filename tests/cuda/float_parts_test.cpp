// What the products of floats and codes by mma.sync multiply: codes as bf16, floats in parts; and where these lie.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>

#include "bitgrad/dtype/bf16.h"
#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/mma/bf16_codes.h"
#include "cuda/kernels/gemm/mma/float_tile.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using cuda::gemm::NumberForm;

float bf16_half(uint32_t pair, int at) { return bf16_to_float(static_cast<uint16_t>(pair >> (16 * at))); }

template <int kBits>
void check_codes(NumberForm form) {
  const cuda::gemm::Bf16Rule rule = cuda::gemm::bf16_rule(kBits, form);
  for (uint32_t raw = 0; raw < 1u << kBits; ++raw) {
    const uint32_t others = (raw * 37 + 11) & ((1u << kBits) - 1);
    const uint32_t fields = raw | others << 8 | others << 16 | raw << 24;
    const uint32_t bytes = cuda::gemm::prepared<kBits>(fields, rule);
    const uint32_t low = cuda::gemm::pair_of<kBits, 0>(bytes, rule), high = cuda::gemm::pair_of<kBits, 1>(bytes, rule);
    const auto expected = static_cast<float>(cuda::gemm::code_number(raw, kBits, form)),
               other = static_cast<float>(cuda::gemm::code_number(others, kBits, form));
    INFO("code " << raw << " of " << kBits << " bits, form " << static_cast<int>(form));
    CHECK(bf16_half(low, 0) == expected);
    CHECK(bf16_half(low, 1) == other);
    CHECK(bf16_half(high, 0) == other);
    CHECK(bf16_half(high, 1) == expected);
  }
}
TEST_CASE("gemm on CUDA: every code of every width is the bf16 of its number") {
  check_codes<1>(NumberForm::kSign);
  for (const NumberForm form : {NumberForm::kSigned, NumberForm::kUnsigned}) {
    if (form == NumberForm::kUnsigned) check_codes<1>(form);
    check_codes<2>(form);
    check_codes<3>(form);
    check_codes<4>(form);
    check_codes<5>(form);
    check_codes<6>(form);
    check_codes<7>(form);
    check_codes<8>(form);
  }
}

TEST_CASE("gemm on CUDA: an fp32 number is the sum of its three bf16 parts") {
  std::mt19937 rng(61);
  for (int i = 0; i < 20000; ++i) {
    const auto word = static_cast<uint32_t>(rng());
    const float x = std::bit_cast<float>(i % 4 == 0 ? word & 0x80FFFFFFu : word);  // tiny ones too
    uint32_t parts[3];
    cuda::gemm::split_float(x, parts);
    float as_bf16[3];
    for (int p = 0; p < 3; ++p) as_bf16[p] = bf16_half(cuda::gemm::upper_halves(parts[p], 0), 0);
    const double sum = double{as_bf16[0]} + as_bf16[1] + as_bf16[2];
    if (std::isfinite(x))
      CHECK(std::fabs(sum - x) <= (std::fabs(x) < 0x1p-108f ? 0x1p-133 : 0.0));
    else
      CHECK(std::isnan(sum));
  }
}

TEST_CASE("gemm on CUDA: threads of a quarter-warp that share a column meet other banks of a turned operand") {
  using Stage = cuda::gemm::FloatStage<3, 8, true, true>;
  for (int half = 0; half < 2; ++half) {
    std::set<int> a, b;
    for (int lane = 0; lane < 8; ++lane) a.insert(Stage::place_a(8 * (lane % 4) + 4 * half, 16 * (lane / 4)) / 16 % 8);
    for (int lane = 0; lane < 32; ++lane) b.insert(Stage::place_b(8 * (lane % 4) + 4 * half, 4 * (lane / 4)) / 4 % 32);
    CHECK(a.size() == 8);
    CHECK(b.size() == 32);
  }
  using Rows = cuda::gemm::FloatStage<3, 4, false, false>;
  std::set<int> rows;
  for (int lane = 0; lane < 8; ++lane) rows.insert(Rows::place_a(lane / 4, 32 * (lane % 4)) / 16 % 8);
  CHECK(rows.size() == 8);
}

}  // namespace
}  // namespace bitgrad
