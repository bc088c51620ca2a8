// Index maps and bit tricks of kernels as functions of the host: what products and packed matrices alone would not
// show, as the emulation places elements by the same maps, and the host reads at any address.
#include <bit>
#include <random>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "cuda/both.h"
#include "cuda/device/fragments.h"
#include "cuda/kernels/gemm/output.h"
#include "cuda/kernels/pack/octet.h"
#include "ops/map/codes.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using test::Outcome;
using test::Placed;

TEST_CASE("The fragments of mma.sync are those of the PTX ISA, byte by byte") {
  using namespace cuda::mma;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, thread = lane & 3;  // groupID, threadID_in_group
    // "Matrix fragments for mma.m16n8k32": a0 .. a15 and b0 .. b7 of .s8 (a register holds four), c0 .. c3.
    for (int i = 0; i < 16; ++i) {
      const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
      const int column = thread * 4 + (i & 3) + (i < 8 ? 0 : 16);
      REQUIRE(a_row(lane, i / 4) == row);
      REQUIRE(a_byte(lane, i / 4) + i % 4 == column);
    }
    for (int i = 0; i < 8; ++i) {
      REQUIRE(b_byte(lane, i / 4) + i % 4 == thread * 4 + (i & 3) + (i < 4 ? 0 : 16));
      REQUIRE(b_column(lane, i / 4) == group);
    }
    for (int i = 0; i < 4; ++i) {
      REQUIRE(d_row(lane, i) == (i < 2 ? group : group + 8));
      REQUIRE(d_column(lane, i) == thread * 2 + (i & 1));
    }
    // "Matrix fragments for mma.m16n8k256": bits a0 .. a127 and b0 .. b63.
    for (int i = 0; i < 128; ++i) {
      const int row = i < 32 || (i >= 64 && i < 96) ? group : group + 8;
      REQUIRE(a_row(lane, i / 32) == row);
      REQUIRE(8 * a_byte(lane, i / 32) + i % 32 == thread * 32 + (i & 31) + (i < 64 ? 0 : 128));
    }
    for (int i = 0; i < 64; ++i)
      REQUIRE(8 * b_byte(lane, i / 32) + i % 32 == thread * 32 + (i & 31) + (i < 32 ? 0 : 128));
  }
}

TEST_CASE("Octets are read in units that width, address and stride are multiples of") {
  alignas(64) static const uint8_t bytes[256] = {};
  for (int bits = 1; bits <= 8; ++bits)
    for (int64_t stride = 8; stride <= 40; ++stride)
      for (int shift = 0; shift < 16; ++shift) {
        const int unit = cuda::code_rows(bytes + shift, stride, bits, 5).unit;
        int expected = 1;
        while (expected < 8 && bits % (2 * expected) == 0 && stride % (2 * expected) == 0 &&
               shift % (2 * expected) == 0)
          expected *= 2;
        INFO(bits << " bits, stride " << stride << ", shift " << shift);
        REQUIRE(unit == expected);
      }
}

TEST_CASE("Only sizes divisible by N are processed N at a time") {
  alignas(64) static const float numbers[32] = {};
  for (int shift = 0; shift < 16; ++shift) {
    CHECK(cuda::lies_on<1>(numbers + shift));
    CHECK(cuda::lies_on<2>(numbers + shift) == (shift % 2 == 0));
    CHECK(cuda::lies_on<4>(numbers + shift) == (shift % 4 == 0));
    CHECK(cuda::lies_on<8>(reinterpret_cast<const uint16_t*>(numbers) + shift) == (shift % 8 == 0));
    CHECK(cuda::lies_on<4>(reinterpret_cast<const uint8_t*>(numbers) + shift) == (shift % 4 == 0));
  }
  CHECK(cuda::lies_on<4>(static_cast<const float*>(nullptr)));
}

TEST_CASE("Places of a matrix are the quotient and the remainder, below and beyond 2^32") {
  constexpr int64_t kNumbers[] = {1,
                                  2,
                                  3,
                                  7,
                                  64,
                                  1000,
                                  65537,
                                  (int64_t{1} << 32) - 1,
                                  int64_t{1} << 32,
                                  (int64_t{1} << 32) + 5,
                                  (int64_t{1} << 40) + 123456789};
  for (const int64_t cols : kNumbers)
    for (const int64_t i : kNumbers)
      for (const int64_t at : {i - 1, i, i * 3, i * 1001}) {
        const cuda::Cell cell = cuda::cell_of(at, cols);
        INFO(at << " of rows of " << cols);
        CHECK((cell.row == at / cols && cell.col == at % cols));
      }
}

TEST_CASE("Kernels of the device round to bf16 and widen fp16 as the codecs of the library do") {
  std::mt19937 random(71);
  const auto same = [&random](uint32_t bits) {
    const float x = std::bit_cast<float>(bits);
    const auto draw = static_cast<uint16_t>(random());
    INFO(std::hex << bits << ", draw " << draw);
    REQUIRE(cuda::gemm::round_to_bf16(x) == bf16_from_float(x));
    REQUIRE(cuda::gemm::round_to_bf16(x, draw) == bf16_from_float_stochastic(x, draw));
    REQUIRE(cuda::gemm::round_to_bf16(x, 0xFFFFu) == bf16_from_float_stochastic(x, 0xFFFFu));
  };
  for (const uint32_t sign : {0u, 0x80000000u})
    for (const uint32_t bits :
         {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0x18000u, 0x3F808000u, 0x3F818000u, 0x3F817FFFu, 0x7F7FFFFFu, 0x7F7F8000u,
          0x7F800000u, 0x7F800001u, 0x7F80FFFFu, 0x7FBF0000u, 0x7FC00000u, 0x7FFFFFFFu})
      same(sign | bits);
  for (int i = 0; i < 100000; ++i) same(static_cast<uint32_t>(random()));
  for (uint32_t half = 0; half < 65536; ++half) {
    const float mine = cuda::gemm::float_of_half(half), theirs = fp16_to_float(static_cast<uint16_t>(half));
    INFO(std::hex << half);
    REQUIRE((std::bit_cast<uint32_t>(mine) == std::bit_cast<uint32_t>(theirs) || (mine != mine && theirs != theirs)));
  }
}

TEST_CASE("A map adds its flag to those that are set") {
  const auto flags_after = [](const std::vector<int32_t>& numbers) {
    const Placed<int32_t> x(numbers);
    const Placed<uint32_t> flags({0xA0u});
    run_map(maps::FlagOutside{x.data(), -3, 5, flags.data()}, static_cast<int64_t>(numbers.size()));
    return flags.values()[0];
  };
  const auto check = [&] {
    CHECK(flags_after({-3, 0, 5}) == 0xA0u);
    CHECK(flags_after({-3, 0, 6}) == 0xA1u);
    CHECK(flags_after({-4, 0, 5}) == 0xA1u);
  };
  check();
  const DeviceGuard guard(Device::cuda());
  check();
}

}  // namespace
}  // namespace bitgrad
