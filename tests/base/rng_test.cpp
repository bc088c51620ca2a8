#include "bitgrad/base/rng.h"

#include <cmath>
#include <string>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

TEST_CASE("Philox gives the known answers of Random123") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  CHECK(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("CRC32C gives the known answers of RFC 3720") {
  CHECK(crc32c("123456789", 9) == 0xE3069283u);
  CHECK(crc32c("", 0) == 0u);
  const std::vector<uint8_t> zeros(32, 0), ones(32, 0xFF);
  CHECK(crc32c(zeros.data(), zeros.size()) == 0x8A9136AAu);
  CHECK(crc32c(ones.data(), ones.size()) == 0x62A8AB43u);
  CHECK(site_id("123456789") == 0xE3069283u);
}

TEST_CASE("CRC32C of parts, cut anywhere and at any address, equals that of the whole") {
  std::string text;
  for (int i = 0; i < 61; ++i) text.push_back(static_cast<char>(i * 37 + 11));
  const uint32_t full = crc32c(text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut)
    CHECK(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)) == full);
}

TEST_CASE("CRC32C of a long text is the same by the instruction and by the tables") {
  const IsaLevel cap = isa_cap();
  std::vector<uint8_t> bytes(5000);
  uint32_t now = 1;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((now = now * 1664525u + 1013904223u) >> 24);
  for (const size_t begin : {0, 1, 5}) {
    for (const size_t count : {511, 512, 513, 519, 520, 4097, 4990}) {
      set_isa_cap(IsaLevel::kScalar);
      const uint32_t tables = crc32c(bytes.data() + begin, count, 0x1234);
      set_isa_cap(cap);
      CHECK(crc32c(bytes.data() + begin, count, 0x1234) == tables);
    }
  }
}

TEST_CASE("A stream names its counter and key as the file format says") {
  const RandomStream stream{0x0123456789ABCDEFull, Purpose::kRequantize, 0xCAFEF00D, 77};
  const uint64_t index = 0xAB12345678ull;
  const PhiloxBlock expected =
      philox4x32_10({0x12345678u, (2u << 24) | 0xABu, 0xCAFEF00Du, 77u}, {0x89ABCDEFu, 0x01234567u});
  CHECK(stream.block(index) == expected);
  CHECK(stream.bits32(index * 4 + 3) == expected[3]);
  CHECK(stream.bits64(index) == (expected[0] | (uint64_t{expected[1]} << 32)));
  for (uint64_t i = 0; i < 8; ++i) {
    const uint32_t word = expected[i / 2];
    CHECK(stream.bits16(index * 8 + i) == ((word >> (16 * (i % 2))) & 0xFFFF));
  }
}

TEST_CASE("fill_bits16 equals bits16 at any offset and length, on every ISA, also where the block number carries") {
  const IsaLevel old = isa_cap();
  const RandomStream stream{0xFEDCBA9876543210ull, Purpose::kActivation, 0x89ABCDEF, 5};
  for (IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    set_isa_cap(level);
    for (uint64_t base : {uint64_t{0}, (uint64_t{1} << 35) - 80, (uint64_t{1} << 59) - 80}) {
      for (uint64_t offset = 0; offset < 9; ++offset) {
        for (int64_t n : {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200}) {
          std::vector<uint16_t> got(static_cast<size_t>(n) + 2, 0xBEEF);
          stream.fill_bits16(base + offset, n, got.data() + 1);
          int wrong = got.front() != 0xBEEF || got.back() != 0xBEEF;
          for (int64_t i = 0; i < n; ++i)
            wrong += got[static_cast<size_t>(i) + 1] != stream.bits16(base + offset + static_cast<uint64_t>(i));
          CHECK(wrong == 0);
        }
      }
    }
  }
  set_isa_cap(old);
}

TEST_CASE("Uniform draws are in [0, 1) and are the upper 24 bits") {
  const RandomStream stream{1, Purpose::kInit, 2, 3};
  double sum = 0;
  for (uint64_t e = 0; e < 20000; ++e) {
    const float u = stream.uniform(e);
    REQUIRE((u >= 0.0f && u < 1.0f));
    REQUIRE(static_cast<uint32_t>(u * 0x1p24f) == stream.bits32(e) >> 8);
    sum += u;
  }
  CHECK(std::abs(sum / 20000 - 0.5) < 6 * 0.2887 / std::sqrt(20000.0));
}

TEST_CASE("Normal draws follow the Box-Muller formula word by word") {
  const RandomStream stream{42, Purpose::kInit, 7, 0};
  for (uint64_t e = 0; e < 4000; ++e) {
    const PhiloxBlock w = stream.block(e / 4);
    const size_t pair = (e & 2) != 0 ? 2 : 0;
    const long double u1 = ((w[pair] >> 8) + 1) * 0x1p-24L, u2 = (w[pair + 1] >> 8) * 0x1p-24L;
    const long double angle = 2 * 3.14159265358979323846264338327950288L * u2;
    const long double expected = std::sqrt(-2 * std::log(u1)) * (e % 2 == 0 ? std::cos(angle) : std::sin(angle));
    REQUIRE(std::abs(stream.normal(e) - expected) <= 3e-7L * std::max(1.0L, std::abs(expected)));
  }
}

TEST_CASE("Normal draws have mean 0, variance 1 and kurtosis 3") {
  const RandomStream stream{3, Purpose::kInit, 9, 0};
  constexpr int kCount = 100000;
  double s1 = 0, s2 = 0, s4 = 0;
  for (uint64_t e = 0; e < kCount; ++e) {
    const double x = stream.normal(e);
    s1 += x;
    s2 += x * x;
    s4 += x * x * x * x;
  }
  const double root = std::sqrt(static_cast<double>(kCount));
  CHECK(std::abs(s1 / kCount) < 5 / root);
  CHECK(std::abs(s2 / kCount - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(s4 / kCount - 3) < 5 * std::sqrt(96.0) / root);
}

TEST_CASE("Streams that differ in one field differ everywhere") {
  const RandomStream base{1, Purpose::kInit, 1, 1};
  for (const RandomStream& other :
       {RandomStream{2, Purpose::kInit, 1, 1}, RandomStream{1ull << 32 | 1, Purpose::kInit, 1, 1},
        RandomStream{1, Purpose::kUser, 1, 1}, RandomStream{1, Purpose::kInit, 2, 1},
        RandomStream{1, Purpose::kInit, 1, 2}})
    for (uint64_t e = 0; e < 16; ++e) CHECK(base.bits64(e) != other.bits64(e));
}

}  // namespace
}  // namespace bitgrad
