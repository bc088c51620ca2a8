#include "emulation/amx/tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "support/plain_loops.h"

namespace bitgrad::kernels::gemm_detail::emulated {
namespace {

constexpr int kTiles = 8;
constexpr char kWhere[] = "emulated tiles";

struct Tile {
  int rows, row_bytes;
  uint8_t bytes[kTileRows][kTileBytes];
};
struct State {
  Account account;
  int64_t products_unstored;
  Tile tiles[kTiles];
};
thread_local State t_state{};

Tile& configured(int tile) {
  ensure(t_state.account.configured, kWhere, "a tile was used before LDTILECFG: #UD.");
  ensure(tile >= 0 && tile < kTiles && t_state.tiles[tile].rows > 0, kWhere, "tile ", tile, " is not configured: #UD.");
  return t_state.tiles[tile];
}

// c[m][n] += sum over k and i of a[m][4k + i] * b[k][4n + i].
template <typename A, typename B>
BITGRAD_PLAIN_LOOPS void multiply_bytes(Tile& c, const Tile& a, const Tile& b) {
  const int columns = c.row_bytes / 4, depth = a.row_bytes / 4;
  int16_t wide[4][kTileRows][kTileRows] = {};  // [byte of the dword][k][n]
  for (int k = 0; k < depth; ++k) {
    for (int n = 0; n < columns; ++n)
      for (int i = 0; i < 4; ++i) wide[i][k][n] = static_cast<B>(b.bytes[k][4 * n + i]);
  }
  for (int m = 0; m < c.rows; ++m) {
    uint32_t sums[kTileRows] = {};
    std::memcpy(sums, c.bytes[m], static_cast<size_t>(c.row_bytes));
    for (int k = 0; k < depth; ++k) {
      for (int i = 0; i < 4; ++i) {
        const int16_t x = static_cast<A>(a.bytes[m][4 * k + i]);
        for (int n = 0; n < kTileRows; ++n)
          sums[n] += static_cast<uint32_t>(static_cast<int32_t>(x) * static_cast<int32_t>(wide[i][k][n]));
      }
    }
    std::memcpy(c.bytes[m], sums, static_cast<size_t>(c.row_bytes));
  }
}

constexpr float kLeastNormal = 0x1p-126f;
float flushed(float x) { return std::fabs(x) < kLeastNormal ? std::copysign(0.0f, x) : x; }
float number(const uint8_t* bf16) {
  uint16_t word;
  std::memcpy(&word, bf16, 2);
  return flushed(bf16_to_float(word));
}
// The product of two bf16 values is exact in fp32 unless its exponent is outside the range of fp32.
float fused(float x, float y, float sum) {
  const float product = x * y;
  const bool exact = product == 0 ? x == 0 || y == 0 : std::fabs(product) >= kLeastNormal && std::isfinite(product);
  return flushed(exact ? sum + product : std::fma(x, y, sum));
}

// With magnitudes between 2^-50 and 2^50, products and their sums are multiples of 2^-114, so nothing is flushed.
bool is_moderate(float x) { return x == 0 || (std::fabs(x) >= 0x1p-50f && std::fabs(x) <= 0x1p50f); }

BITGRAD_PLAIN_LOOPS void multiply_bf16(Tile& c, const Tile& a, const Tile& b) {
  const int columns = c.row_bytes / 4, depth = a.row_bytes / 4;
  float wide[kTileRows][2 * kTileRows] = {};
  bool moderate_b = true;
  for (int k = 0; k < depth; ++k) {
    for (int n = 0; n < 2 * columns; ++n) {
      wide[k][n] = number(&b.bytes[k][2 * n]);
      moderate_b = moderate_b && is_moderate(wide[k][n]);
    }
  }
  for (int m = 0; m < c.rows; ++m) {
    float sums[kTileRows] = {}, chains[2 * kTileRows] = {};
    bool moderate_row = true;
    std::memcpy(sums, c.bytes[m], static_cast<size_t>(c.row_bytes));
    for (int k = 0; k < depth; ++k) {
      const float x[2] = {number(&a.bytes[m][4 * k]), number(&a.bytes[m][4 * k + 2])};
      moderate_row = moderate_row && moderate_b && is_moderate(x[0]) && is_moderate(x[1]);
      if (moderate_row) {
        for (int n = 0; n < 2 * kTileRows; ++n) chains[n] += x[n % 2] * wide[k][n];
        continue;
      }
      for (int n = 0; n < 2 * columns; ++n) chains[n] = fused(x[n % 2], wide[k][n], chains[n]);
    }
    for (int n = 0; n < columns; ++n) sums[n] = flushed(flushed(sums[n]) + flushed(chains[2 * n] + chains[2 * n + 1]));
    std::memcpy(c.bytes[m], sums, static_cast<size_t>(c.row_bytes));
  }
}

}  // namespace

void configure(const TileConfig& config) {
  t_state = {};
  ensure(config.palette == 1 && config.start_row == 0, kWhere, "palette ", int{config.palette}, " from row ",
         int{config.start_row}, ": expected palette 1 from row 0.");
  for (int t = 0; t < 16; ++t) {
    const int rows = config.rows[t], bytes = config.row_bytes[t];
    ensure(t < kTiles ? rows <= kTileRows && bytes <= kTileBytes && (rows == 0) == (bytes == 0) : rows + bytes == 0,
           kWhere, "tile ", t, " of ", rows, " rows of ", bytes, " bytes: #GP.");
    if (t < kTiles) {
      t_state.tiles[t].rows = rows;
      t_state.tiles[t].row_bytes = bytes;
    }
  }
  t_state.account.configured = true;
}

void release() { t_state.account.configured = false; }

void zero(int tile) {
  Tile& t = configured(tile);
  std::memset(t.bytes, 0, sizeof t.bytes);
}

void load(int tile, const void* from, int64_t stride) {
  Tile& t = configured(tile);
  std::memset(t.bytes, 0, sizeof t.bytes);
  for (int r = 0; r < t.rows; ++r)
    std::memcpy(t.bytes[r], static_cast<const uint8_t*>(from) + r * stride, static_cast<size_t>(t.row_bytes));
}

void store(int tile, void* to, int64_t stride) {
  const Tile& t = configured(tile);
  for (int r = 0; r < t.rows; ++r)
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, t.bytes[r], static_cast<size_t>(t.row_bytes));
  t_state.products_unstored = 0;
}

void multiply(TileProduct product, int sums, int a, int b) {
  Tile &c = configured(sums), &x = configured(a), &y = configured(b);
  ensure(sums != a && sums != b && a != b, kWhere, "tiles ", sums, ", ", a, ", ", b, " are not three: #UD.");
  ensure(c.rows == x.rows && c.row_bytes == y.row_bytes && x.row_bytes == 4 * y.rows && c.row_bytes % 4 == 0, kWhere,
         "the shapes of tiles ", sums, ", ", a, ", ", b, " do not make a product: #UD.");
  using Multiply = void (*)(Tile&, const Tile&, const Tile&);
  constexpr Multiply kProducts[] = {&multiply_bytes<int8_t, int8_t>, &multiply_bytes<int8_t, uint8_t>,
                                    &multiply_bytes<uint8_t, int8_t>, &multiply_bytes<uint8_t, uint8_t>,
                                    &multiply_bf16};
  kProducts[static_cast<size_t>(product)](c, x, y);
  ++t_state.account.products;
  ++t_state.products_unstored;
  t_state.account.most_products_unstored = std::max(t_state.account.most_products_unstored, t_state.products_unstored);
}

Account account() { return t_state.account; }

}  // namespace bitgrad::kernels::gemm_detail::emulated
