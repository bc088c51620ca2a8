// Products for few rows on emulated threads, with ==.
#include <string>
#include <utility>
#include <vector>

#include "cuda/gemm_kernels_check.h"
#include "cuda/kernels/gemm/simt/args.h"
#include "support/shape_count.h"

namespace bitgrad {
namespace {

using test::GemmShape;
using test::pairs_of;
using test::Rng;
using test::uniform_int;

GemmShape few_rows(Rng& rng) {
  constexpr int64_t kDeep[] = {0, 1, 31, 32, 33, 64, 65, 127, 129, 1000, 2047, 2048, 2049, 2500};
  return {uniform_int(rng, 1, 10), uniform_int(rng, 1, 20), kDeep[uniform_int(rng, 0, 13)]};
}

// Deep enough that each of the eight warps that cut k has a part, chunks of 32 and of 64 codes.
GemmShape deep(Rng& rng) {
  constexpr int64_t kDeep[] = {7169, 8191, 8193, 14337, 16384};
  return {uniform_int(rng, 1, 5), uniform_int(rng, 1, 9), kDeep[uniform_int(rng, 0, 4)]};
}

TEST_CASE("gemm on CUDA: codes of one and two bits by popc are exact for few rows") {
  const std::vector<DType> bits{dtypes::bint1, dtypes::int1, dtypes::int2, dtypes::uint2, dtypes::ternary};
  test::check_cuda_row("gemm_bits_popc_simt", few_rows, test::shape_count(60), 61, pairs_of(bits, bits), true);
  test::check_cuda_row("gemm_bits_popc_simt", few_rows, test::shape_count(20), 62, pairs_of(bits, bits), true, true);
  test::check_cuda_row("gemm_bits_popc_simt", deep, 10, 65, pairs_of(bits, bits), true);
}

TEST_CASE("gemm on CUDA: bytes times codes by dp4a are exact for few rows") {
  const std::vector<DType> bytes{dtypes::int8, dtypes::uint8};
  test::check_cuda_row("gemm_s8_w_dp4a_simt", few_rows, test::shape_count(60), 63,
                       pairs_of(bytes, test::small_integers()), true);
  test::check_cuda_row("gemm_s8_w_dp4a_simt", few_rows, test::shape_count(20), 64,
                       pairs_of(bytes, test::small_integers()), true, true);
  test::check_cuda_row("gemm_s8_w_dp4a_simt", deep, 10, 66, pairs_of(bytes, test::small_integers()), true);
}

}  // namespace
}  // namespace bitgrad
