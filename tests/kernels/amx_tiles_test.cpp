// The emulated tile instructions against the pseudocode of the Intel SDM (vol. 2, LDTILECFG, TILELOADD, TDPB*D,
// TDPBF16PS), and the index maps of the steps.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "emulation/amx/tiles.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using namespace kernels;
using namespace kernels::gemm_detail;

// Tiles of these rows and bytes; a and b multiply into c.
TileConfig shapes(int rows, int columns, int depth) {
  TileConfig config = block_config();
  config.rows[0] = static_cast<uint8_t>(rows);
  config.row_bytes[0] = static_cast<uint16_t>(4 * columns);
  config.rows[4] = static_cast<uint8_t>(rows);
  config.row_bytes[4] = static_cast<uint16_t>(4 * depth);
  config.rows[6] = static_cast<uint8_t>(depth);
  config.row_bytes[6] = static_cast<uint16_t>(4 * columns);
  return config;
}

std::vector<uint8_t> noise(std::mt19937& rng, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng());
  return out;
}

// [cpu]: rows of the CPU
TEST_CASE("emulated products of bytes are those of the manual for every signedness and shape", "[cpu]") {
  std::mt19937 rng(1);
  constexpr TileProduct kProducts[] = {TileProduct::kSS, TileProduct::kSU, TileProduct::kUS, TileProduct::kUU};
  for (int round = 0; round < 60; ++round) {
    const int m = 1 + static_cast<int>(rng() % 16), n = 1 + static_cast<int>(rng() % 16),
              k = 1 + static_cast<int>(rng() % 16), which = round % 4;
    const std::vector<uint8_t> a = noise(rng, 16 * 80), b = noise(rng, 16 * 80);
    std::vector<uint8_t> c = noise(rng, 16 * 80);
    const std::vector<uint8_t> before = c;
    emulated::configure(shapes(m, n, k));
    EmulatedTiles::load<0>(c.data(), 80);
    EmulatedTiles::load_streamed<4>(a.data(), 80);
    EmulatedTiles::load<6>(b.data(), 80);
    emulated::multiply(kProducts[which], 0, 4, 6);
    EmulatedTiles::store<0>(c.data(), 80);
    int wrong = 0;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 20; ++j) {
        uint32_t sum, got;
        std::memcpy(&sum, &before[static_cast<size_t>(80 * i + 4 * j)], 4);
        std::memcpy(&got, &c[static_cast<size_t>(80 * i + 4 * j)], 4);
        for (int t = 0; i < m && j < n && t < 4 * k; ++t) {
          const uint8_t x = a[static_cast<size_t>(80 * i + t)],
                        y = b[static_cast<size_t>(80 * (t / 4) + 4 * j + t % 4)];
          const int left = which < 2 ? static_cast<int8_t>(x) : x, right = which % 2 == 0 ? static_cast<int8_t>(y) : y;
          sum += static_cast<uint32_t>(left * right);
        }
        wrong += got != sum;
      }
    }
    CHECK(wrong == 0);
  }
  emulated::release();
}

// The manual's order, each fma by the C library in double-checked steps.
float daz(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

TEST_CASE("emulated products of bf16 keep two chains, round to nearest even and flush subnormal numbers", "[cpu]") {
  std::mt19937 rng(2);
  int flushes = 0;
  for (int round = 0; round < 40; ++round) {
    // Numbers near 1, near the ends of the range, and any bits at all (NaN and Inf among them).
    std::vector<uint16_t> a(16 * 32), b(16 * 32);
    std::vector<float> c(16 * 16);
    const auto draw = [&]() -> uint16_t {
      const float x = std::ldexp(static_cast<float>(rng() % 512) - 256.0f, round % 3 == 1 ? -72 : -8);
      return round % 3 == 2 ? static_cast<uint16_t>(rng()) : bf16_from_float(x);
    };
    for (uint16_t& x : a) x = draw();
    for (uint16_t& x : b) x = draw();
    for (float& x : c) x = round % 3 == 1 ? std::ldexp(static_cast<float>(rng() % 64), -130) : 0.25f;
    std::vector<float> got = c;
    emulated::configure(block_config());
    EmulatedTiles::load<1>(c.data(), 64);
    EmulatedTiles::load<4>(a.data(), 64);
    EmulatedTiles::load<7>(b.data(), 64);
    EmulatedTiles::multiply<TileProduct::kBf16, 1, 4, 7>();
    EmulatedTiles::store<1>(got.data(), 64);
    int wrong = 0;
    for (size_t i = 0; i < 16; ++i) {
      for (size_t j = 0; j < 16; ++j) {
        float chain[2] = {0, 0};
        for (size_t t = 0; t < 32; ++t) {
          const float x = daz(bf16_to_float(a[32 * i + t])), y = daz(bf16_to_float(b[32 * (t / 2) + 2 * j + t % 2]));
          const float sum = std::fma(x, y, chain[t % 2]);
          flushes += sum != daz(sum);
          chain[t % 2] = daz(sum);
        }
        const float expected = daz(daz(c[16 * i + j]) + daz(chain[0] + chain[1])), y = got[16 * i + j];
        wrong +=
            std::isnan(expected) ? !std::isnan(y) : std::bit_cast<uint32_t>(y) != std::bit_cast<uint32_t>(expected);
      }
    }
    CHECK(wrong == 0);
  }
  CHECK(flushes > 100);
  emulated::release();
}

TEST_CASE("a load clears what is beyond the configured rows and bytes", "[cpu]") {
  std::vector<uint8_t> ones(1024, 1), out(1024, 7);
  emulated::configure(block_config());
  EmulatedTiles::load<2>(ones.data(), 64);
  TileConfig small = block_config();
  small.rows[2] = 3;
  small.row_bytes[2] = 8;
  emulated::configure(small);
  EmulatedTiles::load<2>(ones.data(), 64);
  EmulatedTiles::store<2>(out.data(), 64);
  for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == (i / 64 < 3 && i % 64 < 8 ? 1 : 7));
  EmulatedTiles::zero<2>();
  EmulatedTiles::store<2>(out.data(), 64);
  CHECK(out[0] == 0);
  CHECK(out[8] == 7);
  emulated::release();
}

TEST_CASE("what is an exception on the machine is an error of the emulation", "[cpu]") {
  std::vector<uint8_t> bytes(1024);
  emulated::release();
  CHECK_THROWS_AS(EmulatedTiles::load<0>(bytes.data(), 64), Error);
  TileConfig config = block_config();
  config.rows[5] = 17;
  CHECK_THROWS_AS(emulated::configure(config), Error);
  config = block_config();
  config.palette = 2;
  CHECK_THROWS_AS(emulated::configure(config), Error);
  config = block_config();
  config.rows[8] = 1;
  CHECK_THROWS_AS(emulated::configure(config), Error);
  emulated::configure(shapes(16, 16, 8));
  CHECK_THROWS_AS(emulated::multiply(TileProduct::kSS, 0, 4, 7), Error);  // the depths differ
  CHECK_THROWS_AS(emulated::multiply(TileProduct::kSS, 0, 4, 4), Error);
  CHECK(emulated::account().configured);
  emulated::release();
  CHECK_THROWS_AS(EmulatedTiles::store<0>(bytes.data(), 64), Error);
}

TEST_CASE("the order of a step is a permutation, and a packed byte's fields are one column of it", "[cpu]") {
  for (int f = 0; f < kTileFormats; ++f) {
    const auto format = static_cast<TileFormat>(f);
    const StepOrder order = make_step_order(format);
    std::set<int> seen(order.begin(), order.end());
    CHECK(seen.size() == 64);
    CHECK(*seen.rbegin() == 63);
    if (format == TileFormat::kHalf) continue;
    // Element k of a word of 32 bits lies in byte k / fields % 4, field k % fields.
    const int bits = format_bits(format), fields = 8 / bits;
    for (int at = 0; at < 64; ++at) {
      const int k = order[static_cast<size_t>(at)], row = at / 4, byte = at % 4;
      CHECK(k * bits / 32 == row / fields);
      CHECK(k * bits % 32 / 8 == byte);
      CHECK(k % fields == row % fields);
    }
  }
  // Both halves of a pair stay together: bytes 2 i, 2 i + 1 of elements 16 e + r.
  const StepOrder halves = make_step_order(TileFormat::kHalf);
  for (size_t at = 0; at < 64; at += 2) {
    CHECK(halves[at] + 1 == halves[at + 1]);
    CHECK(halves[at] == 2 * (16 * (at % 4 / 2) + at / 4));
  }
}

}  // namespace
}  // namespace bitgrad
