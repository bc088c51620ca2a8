// The loops of direct.h over tile instructions (amx_tiles.h). This header is included inside a target region: no std::
// here.
#pragma once

#include "kernels/conv/amx/direct.h"
#include "kernels/gemm/tiles/amx_tiles.h"

namespace bitgrad::kernels::conv {

// Tiles 0 .. 3: sums, [row tile][column tile]; 4, 5: A; 6, 7: B.
// Isa: a tag that keeps the instances apart.
template <typename Tiles, typename Isa>
struct DirectLoops {
  static constexpr int64_t kTile = 1024, kStep = 64;

  static void zero_sums() {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  }
  template <TileProduct kProduct, bool kTwo>
  [[gnu::always_inline]] static void multiply() {
    Tiles::template multiply<kProduct, 0, 4, 6>();
    Tiles::template multiply<kProduct, 2, 5, 6>();
    if constexpr (kTwo) {
      Tiles::template multiply<kProduct, 1, 4, 7>();
      Tiles::template multiply<kProduct, 3, 5, 7>();
    }
  }

  // The parts are innermost, so that a step's B is loaded once for all of them.
  template <TileProduct kProduct, bool kTwo>
  static void plane_block(const PlaneTask& t, int64_t row, int64_t pair, uint8_t* sums) {
    zero_sums();
    const uint8_t* b = t.b + pair * t.lines * t.steps * 2 * kTile;
    for (int64_t line = 0; line < t.lines; ++line) {
      const uint8_t* a = t.plane + row * t.pixel + line * t.line;
      for (int64_t s = 0; s < t.steps; ++s, a += kStep, b += 2 * kTile) {
        Tiles::template load<6>(b, kStep);
        if constexpr (kTwo) Tiles::template load<7>(b + kTile, kStep);
        const uint8_t* from = a;
        for (int part = 0; part < t.parts; ++part, from += t.part_bytes) {
          Tiles::template load<4>(from, t.pixel);
          Tiles::template load<5>(from + 16 * t.pixel, t.pixel);
          multiply<kProduct, kTwo>();
        }
      }
    }
    Tiles::template store<0>(sums, kStep);
    Tiles::template store<1>(sums + kTile, kStep);
    Tiles::template store<2>(sums + 2 * kTile, kStep);
    Tiles::template store<3>(sums + 3 * kTile, kStep);
  }

  template <TileProduct kProduct>
  static void planes(const PlaneTask& t) {
    static constexpr gemm_detail::TileConfig kConfig = gemm_detail::block_config();
    Tiles::configure(kConfig);
    alignas(64) uint8_t sums[2][4 * kTile];
    int64_t waiting_row = -1, waiting_pair = 0, turn = 0;
    for (int64_t pair = 0; pair < t.pairs; ++pair) {
      const bool two = !t.odd || pair + 1 < t.pairs;
      for (int64_t row = 0; row < t.rows; row += 32, ++turn) {
        two ? plane_block<kProduct, true>(t, row, pair, sums[turn % 2])
            : plane_block<kProduct, false>(t, row, pair, sums[turn % 2]);
        if (waiting_row >= 0) t.finish(t.context, waiting_row, waiting_pair, sums[(turn + 1) % 2]);
        waiting_row = row;
        waiting_pair = pair;
      }
    }
    if (waiting_row >= 0) t.finish(t.context, waiting_row, waiting_pair, sums[(turn + 1) % 2]);
    Tiles::release();
  }

  template <TileProduct kProduct, bool kTwo>
  static void position_block(const PositionTask& t, int64_t tile, bool pair_of_tiles, int64_t panel) {
    uint8_t* const s0 = t.sums + (tile * t.panels + panel) * kTile;
    uint8_t* const s1 = pair_of_tiles ? s0 + t.panels * kTile : s0;
    if (t.resume) {
      Tiles::template load<0>(s0, kStep);
      Tiles::template load<2>(s1, kStep);
      if constexpr (kTwo) {
        Tiles::template load<1>(s0 + kTile, kStep);
        Tiles::template load<3>(s1 + kTile, kStep);
      }
    } else {
      zero_sums();
    }
    for (int64_t image = 0; image < t.images; ++image) {
      const uint8_t* a0 = t.a[tile] + image * t.a_image;
      const uint8_t* a1 = t.a[tile + (pair_of_tiles ? 1 : 0)] + image * t.a_image;
      const uint8_t* b = t.b + image * t.b_image + panel * t.b_panel;
      for (int64_t s = 0; s < t.steps; ++s, a0 += kStep, a1 += kStep, b += kTile) {
        Tiles::template load<4>(a0, t.a_pitch);
        Tiles::template load<5>(a1, t.a_pitch);
        const uint8_t* from = b;
        for (int part = 0; part < t.parts; ++part, from += t.b_part) {
          Tiles::template load<6>(from, kStep);
          if constexpr (kTwo) Tiles::template load<7>(from + t.b_panel, kStep);
          multiply<kProduct, kTwo>();
        }
      }
    }
    Tiles::template store<0>(s0, kStep);
    if constexpr (kTwo) Tiles::template store<1>(s0 + kTile, kStep);
    if (!pair_of_tiles) return;
    Tiles::template store<2>(s1, kStep);
    if constexpr (kTwo) Tiles::template store<3>(s1 + kTile, kStep);
  }

  template <TileProduct kProduct>
  static void positions(const PositionTask& t) {
    static constexpr gemm_detail::TileConfig kConfig = gemm_detail::block_config();
    Tiles::configure(kConfig);
    for (int64_t tile = 0; tile < t.tiles; tile += 2)
      for (int64_t panel = 0; panel < t.panels; panel += 2)
        panel + 1 < t.panels ? position_block<kProduct, true>(t, tile, tile + 1 < t.tiles, panel)
                             : position_block<kProduct, false>(t, tile, tile + 1 < t.tiles, panel);
    Tiles::release();
  }

  static void run_planes(TileProduct product, const PlaneTask& t) {
    if (product == TileProduct::kBf16) return planes<TileProduct::kBf16>(t);
    product == TileProduct::kUS ? planes<TileProduct::kUS>(t) : planes<TileProduct::kSS>(t);
  }
  static void run_positions(TileProduct product, const PositionTask& t) {
    if (product == TileProduct::kBf16) return positions<TileProduct::kBf16>(t);
    product == TileProduct::kUS ? positions<TileProduct::kUS>(t) : positions<TileProduct::kSS>(t);
  }
};

// Loops besides the products, compiled for the instruction set of the region.
template <typename Isa>
struct DirectRows {
  static uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
  static float float_of(uint32_t x) { return __builtin_bit_cast(float, x); }
  // Rounds to nearest even; NaN stays NaN.
  static uint32_t rounded(uint32_t u) {
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? (u >> 16) | 0x40u : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  }

  static void split(int64_t n, const float* __restrict x, const float* __restrict fold, int parts,
                    uint16_t* __restrict out, int64_t part) {
    if (parts == 1) {
      for (int64_t j = 0; j < n; ++j)
        out[j] = static_cast<uint16_t>(rounded(bits_of(fold == nullptr ? x[j] : x[j] * fold[j])));
      return;
    }
    uint16_t* __restrict mid = out + part, * __restrict low = out + 2 * part;
    for (int64_t j = 0; j < n; ++j) {
      const float v = fold == nullptr ? x[j] : x[j] * fold[j];
      const float rest = v - float_of(bits_of(v) & 0xFFFF0000u);
      const float last = rest - float_of(bits_of(rest) & 0xFFFF0000u);
      out[j] = static_cast<uint16_t>(bits_of(v) >> 16);
      mid[j] = static_cast<uint16_t>(bits_of(rest) >> 16);
      low[j] = static_cast<uint16_t>(bits_of(last) >> 16);
    }
  }

  // 16 columns of a pair of rows, of which `count` exist.
  template <bool kWhole, bool kParts>
  [[gnu::always_inline]] static void split_pair(int64_t count, const float* __restrict x0, const float* __restrict x1,
                                                const float* __restrict fold, uint16_t* __restrict out, int64_t part) {
    alignas(64) uint32_t high[16] = {}, mid[16] = {}, low[16] = {};
    const int64_t n = kWhole ? 16 : count;
    for (int64_t j = 0; j < n; ++j) {
      const float v0 = x0[j] * fold[j], v1 = x1[j] * fold[j];
      if constexpr (!kParts) {
        high[j] = rounded(bits_of(v0)) | rounded(bits_of(v1)) << 16;
      } else {
        const float r0 = v0 - float_of(bits_of(v0) & 0xFFFF0000u), r1 = v1 - float_of(bits_of(v1) & 0xFFFF0000u);
        const float l0 = r0 - float_of(bits_of(r0) & 0xFFFF0000u), l1 = r1 - float_of(bits_of(r1) & 0xFFFF0000u);
        high[j] = bits_of(v0) >> 16 | (bits_of(v1) & 0xFFFF0000u);
        mid[j] = bits_of(r0) >> 16 | (bits_of(r1) & 0xFFFF0000u);
        low[j] = bits_of(l0) >> 16 | (bits_of(l1) & 0xFFFF0000u);
      }
    }
    __builtin_memcpy(out, high, 64);
    if constexpr (kParts) {
      __builtin_memcpy(out + part, mid, 64);
      __builtin_memcpy(out + 2 * part, low, 64);
    }
  }
  template <bool kParts>
  static void split_all_pairs(int64_t n, int64_t pairs, const float* x0, const float* x1, int64_t step,
                              const float* fold, uint16_t* out, int64_t part, int64_t panel) {
    for (int64_t j0 = 0; j0 < n; j0 += 16, out += panel) {
      const int64_t count = n - j0 < 16 ? n - j0 : 16;
      alignas(64) float factors[16];
      for (int64_t j = 0; j < 16; ++j) factors[j] = fold == nullptr || j >= count ? 1.0f : fold[j0 + j];
      for (int64_t i = 0; i < pairs; ++i) {
        const float *const a = x0 + i * step + j0, *const b = x1 + i * step + j0;
        count == 16 ? split_pair<true, kParts>(count, a, b, factors, out + i * 32, part)
                    : split_pair<false, kParts>(count, a, b, factors, out + i * 32, part);
      }
    }
  }
  static void split_pairs(int64_t n, int64_t pairs, const float* x0, const float* x1, int64_t step, const float* fold,
                          int parts, uint16_t* out, int64_t part, int64_t panel) {
    parts == 1 ? split_all_pairs<false>(n, pairs, x0, x1, step, fold, out, part, panel)
               : split_all_pairs<true>(n, pairs, x0, x1, step, fold, out, part, panel);
  }

  static void interleave(int64_t n, const int8_t* const* rows, uint8_t* __restrict out, int64_t panel) {
    for (int64_t j0 = 0; j0 < n; j0 += 16, out += panel) {
      const int64_t count = n - j0 < 16 ? n - j0 : 16;
      uint32_t words[16] = {};
      for (int64_t j = 0; j < count; ++j) {
        words[j] = uint32_t{static_cast<uint8_t>(rows[0][j0 + j])} |
                   uint32_t{static_cast<uint8_t>(rows[1][j0 + j])} << 8 |
                   uint32_t{static_cast<uint8_t>(rows[2][j0 + j])} << 16 |
                   uint32_t{static_cast<uint8_t>(rows[3][j0 + j])} << 24;
      }
      __builtin_memcpy(out, words, 64);
    }
  }

  static void to_bf16(int64_t n, const uint8_t* __restrict x, bool is_unsigned, uint16_t* __restrict out) {
    if (is_unsigned) {
      for (int64_t j = 0; j < n; ++j) out[j] = static_cast<uint16_t>(bits_of(static_cast<float>(x[j])) >> 16);
    } else {
      for (int64_t j = 0; j < n; ++j)
        out[j] = static_cast<uint16_t>(bits_of(static_cast<float>(static_cast<int8_t>(x[j]))) >> 16);
    }
  }

  // Writes a row of C; whole: all 32 columns.
  template <bool kWhole, typename Sum>
  [[gnu::always_inline]] static void finish_row(const RowFinish& out, const Sum* __restrict s0,
                                                const Sum* __restrict s1, const float* __restrict scale,
                                                const float* __restrict bias, int64_t at, int64_t column,
                                                int64_t count) {
    const int64_t left = kWhole ? 16 : count < 16 ? count : 16, right = kWhole ? 16 : count - left;
    if (out.integers) {
      auto* const c = static_cast<int32_t*>(out.c) + at * out.ldc + column;
      for (int64_t j = 0; j < left; ++j) c[j] = static_cast<int32_t>(s0[j]);
      for (int64_t j = 0; j < right; ++j) c[16 + j] = static_cast<int32_t>(s1[j]);
      return;
    }
    auto* const c = static_cast<float*>(out.c) + at * out.ldc + column;
    if (bias == nullptr) {
      for (int64_t j = 0; j < left; ++j) c[j] = static_cast<float>(s0[j]) * scale[j];
      for (int64_t j = 0; j < right; ++j) c[16 + j] = static_cast<float>(s1[j]) * scale[16 + j];
    } else {
      for (int64_t j = 0; j < left; ++j) c[j] = static_cast<float>(s0[j]) * scale[j] + bias[j];
      for (int64_t j = 0; j < right; ++j) c[16 + j] = static_cast<float>(s1[j]) * scale[16 + j] + bias[16 + j];
    }
  }
  template <typename Sum>
  static void finish_block(const RowFinish& out, int64_t row, int64_t pair, const uint8_t* bytes) {
    const auto* sums = reinterpret_cast<const Sum*>(bytes);
    const int64_t column = pair * 32, count = out.columns - column < 32 ? out.columns - column : 32;
    alignas(64) float scale[32] = {}, bias[32] = {};
    for (int64_t j = 0; j < count; ++j) {
      scale[j] = out.image_scale * (out.scale == nullptr ? 1.0f : out.scale[(column + j) * out.scale_step]);
      bias[j] = out.bias == nullptr ? 0.0f : out.bias[column + j];
    }
    const float* const offsets = out.bias == nullptr ? nullptr : bias;
    for (int half = 0; half < 2; ++half, sums += 512)
      for (int r = 0; r < 16; ++r) {
        const int32_t at = out.place[row + half * 16 + r];
        if (at < 0) continue;
        const Sum *const s0 = sums + r * 16, *const s1 = s0 + 256;
        count == 32 ? finish_row<true>(out, s0, s1, scale, offsets, at, column, count)
                    : finish_row<false>(out, s0, s1, scale, offsets, at, column, count);
      }
  }
  static void finish(const RowFinish& out, int64_t row, int64_t pair, const uint8_t* sums) {
    out.floats ? finish_block<float>(out, row, pair, sums) : finish_block<int32_t>(out, row, pair, sums);
  }
};

// The instruction set for these tiles.
template <typename Tiles, typename Isa>
constexpr DirectIsa make_direct_isa(decltype(DirectIsa::transpose_bytes) transpose_bytes) {
  return {&DirectLoops<Tiles, Isa>::run_planes,
          &DirectLoops<Tiles, Isa>::run_positions,
          &DirectRows<Isa>::finish,
          &DirectRows<Isa>::split,
          &DirectRows<Isa>::split_pairs,
          &DirectRows<Isa>::interleave,
          &DirectRows<Isa>::to_bf16,
          transpose_bytes};
}

}  // namespace bitgrad::kernels::conv
