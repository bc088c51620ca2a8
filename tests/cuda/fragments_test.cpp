// Index maps of the tensor cores: swizzle, fragments, matrix descriptors, order of tiles.
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "cuda/device/fragments.h"
#include "cuda/kernels/gemm/wgmma/args.h"
#include "cuda/kernels/gemm/wgmma/unpack.h"
#include "dtype/layouts/frag64.h"
#include "support/catch.h"

namespace bitgrad::cuda {
namespace {

TEST_CASE("The swizzle moves 16-byte chunks within their row, differently in each of eight rows") {
  for (uint32_t row = 0; row < 32; ++row) {
    std::set<uint32_t> chunks;
    for (uint32_t byte = 0; byte < 128; ++byte) {
      const uint32_t at = swizzle128(row * 128 + byte);
      REQUIRE(at == row * 128 + ((byte / 16) ^ (row % 8)) * 16 + byte % 16);
      REQUIRE(swizzle128(at) == row * 128 + byte);
      chunks.insert(at / 16);
    }
    REQUIRE(chunks.size() == 8);
  }
  // One chunk of eight rows lies in all banks.
  std::set<uint32_t> banks;
  for (uint32_t row = 0; row < 8; ++row) banks.insert(swizzle128(row * 128 + 48) % 128);
  CHECK(banks.size() == 8);
}

TEST_CASE("The accumulators of a warpgroup hold every element of D once") {
  for (const int n : {8, 64, 128, 256}) {
    std::set<std::pair<int, int>> seen;
    for (int thread = 0; thread < kWarpgroup; ++thread) {
      for (int i = 0; i < n / 2; ++i) {
        const TilePoint p = accumulator_point(thread, i);
        REQUIRE((p.row >= 0 && p.row < 64 && p.column >= 0 && p.column < n));
        seen.insert({p.row, p.column});
      }
    }
    CHECK(seen.size() == static_cast<size_t>(64 * n));
  }
  // Figure "WGMMA .m64nNk32 register fragment layout for accumulator matrix D" of the PTX ISA.
  CHECK(accumulator_point(0, 0) == TilePoint{0, 0});
  CHECK(accumulator_point(0, 1) == TilePoint{0, 1});
  CHECK(accumulator_point(0, 2) == TilePoint{8, 0});
  CHECK(accumulator_point(0, 4) == TilePoint{0, 8});
  CHECK(accumulator_point(5, 3) == TilePoint{9, 3});
  CHECK(accumulator_point(32 + 4, 0) == TilePoint{17, 0});
  CHECK(accumulator_point(127, 7) == TilePoint{63, 15});
}

TEST_CASE("The operand registers of a warpgroup hold every byte of A once") {
  std::set<std::pair<int, int>> seen;
  for (int thread = 0; thread < kWarpgroup; ++thread) {
    for (int i = 0; i < 4; ++i) {
      for (int byte = 0; byte < 4; ++byte) {
        const TilePoint p = operand_point(thread, i, byte);
        REQUIRE((p.row >= 0 && p.row < 64 && p.column >= 0 && p.column < kStepBytes));
        seen.insert({p.row, p.column});
      }
    }
  }
  CHECK(seen.size() == 64u * kStepBytes);
  CHECK(operand_point(0, 0, 3) == TilePoint{0, 3});
  CHECK(operand_point(0, 1, 0) == TilePoint{8, 0});
  CHECK(operand_point(0, 2, 0) == TilePoint{0, 16});
  CHECK(operand_point(7, 3, 1) == TilePoint{9, 29});
  CHECK(operand_point(96, 0, 0) == TilePoint{48, 0});
}

TEST_CASE("A matrix descriptor has the fields of the PTX ISA") {
  CHECK(encode({1024, 0, 0, 0, Swizzle::kNone}) == 64u);
  CHECK(encode({0, 16, 0, 0, Swizzle::kNone}) == uint64_t{1} << 16);
  CHECK(encode({0, 0, 1024, 0, Swizzle::kNone}) == uint64_t{64} << 32);
  CHECK(encode({0, 0, 0, 5, Swizzle::kNone}) == uint64_t{5} << 49);
  CHECK(encode({0, 0, 0, 0, Swizzle::k128}) == uint64_t{1} << 62);
  CHECK(encode({0, 0, 0, 0, Swizzle::k32}) == uint64_t{3} << 62);
  CHECK(describe_tile(0x8000) == ((uint64_t{1} << 62) | (uint64_t{64} << 32) | (uint64_t{1} << 16) | 0x800u));
  for (uint32_t address = 0; address < 0x40000; address += 16) {
    const MatrixDescriptor d{address, (address * 7 + 16) & 0x3FFF0, (address * 13 + 32) & 0x3FFF0, address / 16 % 8,
                             static_cast<Swizzle>(address / 16 % 4)};
    REQUIRE(decode(encode(d)) == d);
  }
}

TEST_CASE("A swizzled descriptor finds every byte where a swizzled copy put it") {
  for (const uint32_t base : {0u, 1024u, 0xC000u, 0x38000u}) {
    for (int step = 0; step < 4; ++step) {
      const MatrixDescriptor d = decode(advance(describe_tile(base), step));
      for (int row = 0; row < 256; ++row)
        for (int byte = 0; byte < kStepBytes; ++byte)
          REQUIRE(operand_address(d, row, byte) ==
                  base + swizzle128(static_cast<uint32_t>(row * kBlockBytes + step * kStepBytes + byte)));
    }
  }
  // Rows 64 and later of a tile of 128 rows, as the second consumer sees them.
  const MatrixDescriptor half = decode(describe_tile(4096 + 64 * kBlockBytes));
  CHECK(operand_address(half, 3, 17) == 4096 + swizzle128(67 * kBlockBytes + 17));
}

TEST_CASE("Every mode of the swizzle is a bijection onto its tile") {
  const std::pair<Swizzle, uint32_t> modes[] = {{Swizzle::k128, 128}, {Swizzle::k64, 64}, {Swizzle::k32, 32}};
  for (const auto& [mode, span] : modes) {
    std::set<uint32_t> seen;
    for (uint32_t step = 0; step < span / 32; ++step) {
      const MatrixDescriptor d{step * 32, 16, span * 8, 0, mode};
      for (int row = 0; row < 32; ++row)
        for (int byte = 0; byte < 32; ++byte) {
          const uint32_t at = operand_address(d, row, byte);
          REQUIRE(at / span == static_cast<uint32_t>(row));
          seen.insert(at);
        }
    }
    CHECK(seen.size() == 32 * span);
  }
  std::set<uint32_t> seen;
  for (int row = 0; row < 16; ++row)
    for (int byte = 0; byte < 32; ++byte) seen.insert(operand_address({0, 128, 256, 0, Swizzle::kNone}, row, byte));
  CHECK(seen.size() == 512);
}

TEST_CASE("A schedule visits every tile once, a band of rows column by column") {
  for (const int32_t rows : {1, 2, 3, 7, 8, 17}) {
    for (const int32_t columns : {1, 2, 5, 9}) {
      for (const int32_t band : {1, 2, 4, 8}) {
        const gemm::TileSchedule schedule{rows, columns, band};
        std::set<std::pair<int, int>> seen;
        for (int32_t i = 0; i < schedule.count(); ++i) {
          const TilePoint tile = schedule.at(i);
          REQUIRE((tile.row >= 0 && tile.row < rows && tile.column >= 0 && tile.column < columns));
          REQUIRE(tile.row / band == i / (band * columns));
          seen.insert({tile.row, tile.column});
        }
        REQUIRE(seen.size() == static_cast<size_t>(rows * columns));
      }
    }
  }
  const gemm::TileSchedule schedule{5, 3, 2};
  CHECK(schedule.at(1) == TilePoint{1, 0});
  CHECK(schedule.at(2) == TilePoint{0, 1});
  CHECK(schedule.at(13) == TilePoint{4, 1});
}

TEST_CASE("Layout frag64 gives every bit of a block one place, in the registers of its thread") {
  for (const int part : {1, 2, 4}) {
    std::set<std::pair<int, int>> seen;
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < 128; ++column) {
        const frag64_layout::CodePlace at = frag64_layout::place(part, row, column);
        REQUIRE((at.byte >= 0 && at.byte < frag64_layout::block_bytes(part)));
        REQUIRE(at.shift % part == 0);
        seen.insert({at.byte, at.shift});
      }
    }
    CHECK(seen.size() == 64u * 128u);
    for (int byte = 0; byte < frag64_layout::block_bytes(part); byte += 4) {
      const frag64_layout::WordPlace word = frag64_layout::word_place(part, byte);
      REQUIRE((word.thread < 128 && word.word < 2 * part));
      REQUIRE(frag64_layout::word_byte(part, word.thread, word.word) == byte);
    }
    // The inverse: registers of threads, by the fragment map of the tensor core.
    for (int thread = 0; thread < kWarpgroup; ++thread) {
      for (int index = 0; index < 16; ++index) {
        for (int byte = 0; byte < 4; ++byte) {
          const TilePoint p = operand_point(thread, index % 4, byte);
          const frag64_layout::CodePlace at = frag64_layout::place(part, p.row, 32 * (index / 4) + p.column);
          REQUIRE(at.byte == frag64_layout::word_byte(part, thread, index / (8 / part)) + byte);
          REQUIRE(at.shift == index % (8 / part) * part);
        }
      }
    }
  }
}

template <int kBits>
void check_signed_bytes() {
  for (uint32_t raw = 0; raw < (1u << kBits); ++raw) {
    const uint32_t top = (raw << (8 - kBits)) * 0x01010101u;
    const int number = raw >= (1u << (kBits - 1)) ? static_cast<int>(raw) - (1 << kBits) : static_cast<int>(raw);
    REQUIRE(static_cast<int8_t>(gemm::signed_bytes(top, {})) == number * (1 << (8 - kBits)));
    const gemm::FragmentOperand is_unsigned{nullptr, 0, 1, 0x7F7F7F7Fu, 1, 0};
    REQUIRE(gemm::signed_bytes(top, is_unsigned) == (raw << (7 - kBits)) * 0x01010101u);
  }
}

TEST_CASE("Codes at the top of their bytes become signed bytes of every kind") {
  check_signed_bytes<1>();
  check_signed_bytes<2>();
  check_signed_bytes<3>();
  check_signed_bytes<4>();
  check_signed_bytes<5>();
  check_signed_bytes<6>();
  check_signed_bytes<7>();
  const gemm::FragmentOperand sign{nullptr, 0, 7, 0x01010101u, 254, ~0u};
  CHECK(gemm::signed_bytes(0x80008000u, sign) == 0x01FF01FFu);
  CHECK(gemm::signed_bytes(0x00800080u, sign) == 0xFF01FF01u);
}

}  // namespace
}  // namespace bitgrad::cuda
