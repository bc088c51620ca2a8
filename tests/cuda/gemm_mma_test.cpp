// Products by mma.sync on emulated warps: index maps, unpacking, and every row against sums of 128 bits with ==.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device/fragments.h"
#include "cuda/gemm_kernels_check.h"
#include "cuda/kernels/gemm/unpack.h"
#include "support/catch.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::cuda_kernel;
using test::GemmShape;
using test::pairs_of;
using test::Rng;
using test::small_integers;
using test::uniform_int;

TEST_CASE("gemm on CUDA: fragments of mma.sync hold every element of their matrices once") {
  std::set<std::pair<int, int>> a, b, d, rows;
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) a.emplace(cuda::mma::a_row(lane, r), cuda::mma::a_byte(lane, r));
    for (int r = 0; r < 2; ++r) b.emplace(cuda::mma::b_column(lane, r), cuda::mma::b_byte(lane, r));
    for (int r = 0; r < 4; ++r) d.emplace(cuda::mma::d_row(lane, r), cuda::mma::d_column(lane, r));
  }
  CHECK(a.size() == 128);
  CHECK(b.size() == 64);
  CHECK(d.size() == 128);
  CHECK(*a.rbegin() == std::pair(15, 28));
  CHECK(*b.rbegin() == std::pair(7, 28));
  CHECK(*d.rbegin() == std::pair(15, 7));
  std::set<int> places;
  for (int row = 0; row < 128; ++row)
    for (int chunk = 0; chunk < 4; ++chunk) places.insert(cuda::mma::swizzle64(row, chunk));
  CHECK(places.size() == 512);
  CHECK(*places.rbegin() == 128 * 64 - 16);
  // Eight rows that an ldmatrix reads at once meet all 32 banks.
  for (int row = 0; row < 128; row += 8) {
    for (int chunk = 0; chunk < 4; ++chunk) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(cuda::mma::swizzle64(row + i, chunk) / 16 % 8);
      CHECK(banks.size() == 8);
    }
  }
}

template <int kBits>
void check_unpack(Rng& rng) {
  using cuda::gemm::NumberForm;
  for (const NumberForm form : {NumberForm::kSigned, NumberForm::kUnsigned, NumberForm::kSign}) {
    if (form == NumberForm::kSign && kBits != 1) continue;
    uint32_t words[2 * kBits];
    for (uint32_t& word : words) word = static_cast<uint32_t>(rng());
    for (int k = 0; k < 64; k += 4) {
      const uint32_t bytes = cuda::gemm::unpack4<kBits>(words, k, cuda::gemm::byte_rule(kBits, form));
      for (int i = 0; i < 4; ++i) {
        const uint32_t raw = load_raw(words, k + i, kBits);
        const int expected = cuda::gemm::code_number(raw, kBits, form);
        REQUIRE(static_cast<int8_t>(bytes >> (8 * i)) == expected);
      }
    }
  }
}
TEST_CASE("gemm on CUDA: four packed codes become four signed bytes at every place and width") {
  Rng rng(50);
  for (int i = 0; i < 50; ++i) {
    check_unpack<1>(rng);
    check_unpack<2>(rng);
    check_unpack<3>(rng);
    check_unpack<4>(rng);
    check_unpack<5>(rng);
    check_unpack<6>(rng);
    check_unpack<7>(rng);
  }
}

GemmShape mma_shape(Rng& rng) {
  constexpr int64_t kFree[] = {1, 7, 16, 31, 33, 64, 65, 127, 128, 129, 140};
  constexpr int64_t kDeep[] = {0, 1, 15, 63, 64, 65, 127, 200, 257, 320, 511, 513, 600};
  return {kFree[uniform_int(rng, 0, 10)], kFree[uniform_int(rng, 0, 10)], kDeep[uniform_int(rng, 0, 12)]};
}
void check_row(const std::string& name, int count, uint64_t seed, const std::vector<std::pair<DType, DType>>& pairs,
               bool general, bool offsets = false) {
  test::check_cuda_row(name, mma_shape, count, seed, pairs, general, offsets);
}

TEST_CASE("gemm on CUDA: bytes by mma.sync are exact for every pair of small integers, zeros and orders of storage") {
  check_row("gemm_s8_s8_mma", test::shape_count(60), 51, pairs_of(small_integers(), small_integers()), true);
  check_row("gemm_s8_s8_mma", test::shape_count(20), 52,
            pairs_of({dtypes::int8, dtypes::uint8}, {dtypes::int8, dtypes::uint8}), false);
  check_row("gemm_s8_s8_mma", test::shape_count(20), 53,
            pairs_of({dtypes::int8, dtypes::uint8}, {dtypes::int8, dtypes::uint8}), true, true);
}
TEST_CASE("gemm on CUDA: bytes times packed weights by mma.sync are exact at every width") {
  std::vector<DType> weights;
  for (const DType d : small_integers())
    if (d.bits() < 8) weights.push_back(d);
  check_row("gemm_s8_w_mma", test::shape_count(60), 54, pairs_of({dtypes::int8, dtypes::uint8}, weights), true);
  check_row("gemm_s8_w_mma", test::shape_count(20), 55, pairs_of({dtypes::int8, dtypes::uint8}, weights), true, true);
}
TEST_CASE("gemm on CUDA: bits and pairs of planes by mma.sync are exact") {
  const std::vector<DType> one{dtypes::bint1, dtypes::int1}, two{dtypes::int2, dtypes::uint2, dtypes::ternary};
  check_row("gemm_b1_b1_mma", test::shape_count(40), 56, pairs_of(one, one), false);
  check_row("gemm_b1_b1_mma", test::shape_count(20), 57, pairs_of(one, one), true, true);
  std::vector<DType> four{dtypes::int4, dtypes::uint4, dtypes::int3};
  four.insert(four.end(), two.begin(), two.end());
  check_row("gemm_planes_b1_mma", test::shape_count(30), 58, pairs_of(four, one), true);
  check_row("gemm_b1_planes_mma", test::shape_count(30), 59, pairs_of(one, four), true);
  check_row("gemm_planes_planes_mma", test::shape_count(30), 60, pairs_of(two, two), true);
}

TEST_CASE("gemm on CUDA: sums at the ends of int32 stay exact by mma.sync, and deeper products go elsewhere") {
  GemmArgs args;
  args.m = args.n = 1;
  args.ldc = 1;
  args.a.dtype = args.b.dtype = dtypes::uint8;
  const GemmKernel& kernel = cuda_kernel("gemm_s8_s8_mma");
  args.k = 33026;
  CHECK_FALSE(kernel.supports(args));
  args.k = 33025;
  CHECK(kernel.supports(args));
  std::vector<uint8_t> high(33032, 255);
  int64_t c = 0;
  args.a.data = args.b.data = high.data();
  args.a.stride = args.b.stride = 33032;
  args.c = &c;
  args.c_dtype = dtypes::int64;
  test::run_on_device(kernel, args);
  CHECK(c == int64_t{33025} * 65025);
}

}  // namespace
}  // namespace bitgrad
