// The loops of binary.h over vectors of 16 lanes. This header is included inside a target region: no std:: here.
#pragma once

#include "kernels/conv/binary/binary.h"

namespace bitgrad::kernels::conv {

template <typename Lanes>
struct SignLoops {
  using F = typename Lanes::F;
  using I = typename Lanes::I;

  // ---- codes ----
  static void nibbles(const NibbleCall& call) {
    const uint16_t* m = call.masks;
    for (int64_t k = 0; k < call.count; ++k, m += kTableCodes) {
      I v = Lanes::bits(Lanes::no_bits(), m[0], 1);
      v = Lanes::bits(v, m[1], 2);
      v = Lanes::bits(v, m[2], 4);
      Lanes::store(call.out + k * kLanes, Lanes::bits(v, m[3], 8));
    }
  }

  // ---- forward ----
  template <int kWindows>
  [[gnu::always_inline]] static void sign_windows(const SignRow& r, int64_t first) {
    I sums[kWindows][2];
#pragma GCC unroll 8
    for (int p = 0; p < kWindows; ++p) sums[p][0] = sums[p][1] = Lanes::no_bits();
    for (int64_t t = 0; t < r.taps; ++t) {
      const uint8_t* x = r.lines[t] + first * r.pixel;
      const uint64_t *w = r.weights[t], *mask = r.masks + first * r.words;
      for (int64_t l = 0; l < r.words; ++l, x += 8, w += 16, ++mask) {
        const I w0 = Lanes::load_words(w), w1 = Lanes::load_words(w + 8);
#pragma GCC unroll 8
        for (int p = 0; p < kWindows; ++p) {
          const I bits = Lanes::word(x + p * r.pixel), used = Lanes::word(mask + p * r.words);
          sums[p][0] = Lanes::add_differences(sums[p][0], bits, w0, used);
          sums[p][1] = Lanes::add_differences(sums[p][1], bits, w1, used);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kWindows; ++p) {
      const I sum = Lanes::products(Lanes::narrow(sums[p][0], sums[p][1]), r.valid[first + p]);
      const int64_t at = (first + p) * r.ldc;
      if (r.integers) {
        Lanes::store_part(static_cast<int32_t*>(r.c) + at, sum, r.outputs);
        continue;
      }
      F y = Lanes::mul(Lanes::floats(sum), Lanes::load(r.scale));
      if (r.bias != nullptr) y = Lanes::add(y, Lanes::load(r.bias));
      Lanes::store_part(static_cast<float*>(r.c) + at, y, r.outputs);
    }
  }
  static void sign_row(const SignRow& r) {
    int64_t first = 0;
    for (; first + 4 <= r.windows; first += 4) sign_windows<4>(r, first);
    for (; first < r.windows; ++first) sign_windows<1>(r, first);
  }

  // ---- tables ----
  struct Signs {
    F s[4];
    [[gnu::always_inline]] Signs() {
      alignas(64) float values[4][16];
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 16; ++j) values[i][j] = (j >> i & 1) != 0 ? 1.0f : -1.0f;
      for (int i = 0; i < 4; ++i) s[i] = Lanes::load(values[i]);
    }
    // Entry j: the sum of four values, positive for the bits set in j, otherwise negative.
    [[gnu::always_inline]] F table(const float* x) const {
      const F low = Lanes::fma(Lanes::all(x + 1), s[1], Lanes::mul(Lanes::all(x), s[0]));
      return Lanes::fma(Lanes::all(x + 3), s[3], Lanes::fma(Lanes::all(x + 2), s[2], low));
    }
  };

  static constexpr int64_t kAhead = 768;  // floats of gy to prefetch ahead
  [[gnu::always_inline]] static F values_at(const void* x, bool bytes, int64_t at, int64_t count) {
    if (bytes) return Lanes::load_bytes(static_cast<const int8_t*>(x) + at, count);
    const float* const from = static_cast<const float*>(x) + at;
    Lanes::fetch(from + kAhead);
    return Lanes::load_part(from, count);
  }
  static void tables(const TableLine& line) {
    const Signs signs;
    alignas(64) float x[16] = {}, fold[16];
    for (int64_t i = 0; i < 16; ++i) fold[i] = line.fold == nullptr || i >= line.channels ? 1.0f : line.fold[i];
    for (int64_t p = 0; p < line.pixels; ++p) {
      float* const to = line.tables + p * 4 * kTableFloats;
      F values = Lanes::mul(values_at(line.x, line.bytes, p * line.step, line.channels), Lanes::load(fold));
      if (line.bf16) values = Lanes::rounded(values);
      Lanes::store(x, values);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) Lanes::store(to + q * kTableFloats, signs.table(x + q * kTableCodes));
    }
  }

  // ---- gx ----
  template <int kPixels>
  [[gnu::always_inline]] static void table_pixels(const TableRow& r, int64_t first) {
    F sums[kPixels];
    float* const out = r.out + first * r.step;
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p)
      sums[p] = r.resume ? Lanes::load_part(out + p * r.step, r.channels) : Lanes::zero();
    const float* const tables = r.tables + first * 4 * kTableFloats;
    const int32_t* index = r.index;
    for (int64_t t = 0; t < r.taps; ++t, index += 4 * kLanes) {
      const float* const table = tables + r.offsets[t];
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const I at = Lanes::load_index(index + q * kLanes);
#pragma GCC unroll 8
        for (int p = 0; p < kPixels; ++p)
          sums[p] = Lanes::add(sums[p], Lanes::permute(at, Lanes::load(table + (p * 4 + q) * kTableFloats)));
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p)
      Lanes::store_part(out + p * r.step, Lanes::mul(sums[p], Lanes::all(&r.scale)), r.channels);
  }
  static void table_row(const TableRow& r) {
    int64_t first = 0;
    for (; first + 8 <= r.pixels; first += 8) table_pixels<8>(r, first);
    switch (r.pixels - first) {
      case 7:
        return table_pixels<7>(r, first);
      case 6:
        return table_pixels<6>(r, first);
      case 5:
        return table_pixels<5>(r, first);
      case 4:
        return table_pixels<4>(r, first);
      case 3:
        return table_pixels<3>(r, first);
      case 2:
        return table_pixels<2>(r, first);
      case 1:
        return table_pixels<1>(r, first);
      default:
        return;
    }
  }

  // ---- gw ----
  static void mix(const MixCall& call) {
    const float one = 1.0f;
    const F fold = Lanes::all(call.fold == nullptr ? &one : call.fold);
    for (int64_t m = 0; m < call.windows; ++m) {
      F v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        v[i] = Lanes::zero();
        if (call.x[i] == nullptr) continue;
        v[i] = Lanes::mul(values_at(call.x[i], call.bytes, m * call.step, call.channels), fold);
        if (call.bf16) v[i] = Lanes::rounded(v[i]);
      }
      Lanes::transpose(v);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) Lanes::store(call.out + j * call.plane + m * kLanes, v[j]);
    }
  }

  template <int kLines, int kTaps, bool kAll>
  [[gnu::always_inline]] static void add_taps(F (&sums)[2][kLines * kTaps], const int32_t* index, int64_t line, F t0,
                                              F t1, int valid) {
#pragma GCC unroll 9
    for (int x = 0; x < kTaps; ++x) {
      if (!kAll && (valid >> x & 1) == 0) continue;
#pragma GCC unroll 3
      for (int y = 0; y < kLines; ++y) {
        const I at = Lanes::once(Lanes::load_index(index + y * line + x * kLanes));
        sums[0][y * kTaps + x] = Lanes::add(sums[0][y * kTaps + x], Lanes::permute(at, t0));
        sums[1][y * kTaps + x] = Lanes::add(sums[1][y * kTaps + x], Lanes::permute(at, t1));
      }
    }
  }
  template <int kLines, int kTaps>
  static void weight_run(const WeightRun& run) {
    constexpr int kAll = (1 << kTaps) - 1;
    const Signs signs;
    F sums[2][kLines * kTaps];
#pragma GCC unroll 9
    for (int t = 0; t < kLines * kTaps; ++t) {
      sums[0][t] = Lanes::load(run.sums + t * kLanes);
      sums[1][t] = Lanes::load(run.second_sums + t * kLanes);
    }
    for (int64_t row = 0; row < run.rows; ++row) {
      const int32_t* index = run.index + row * run.row;
      const float* gy = run.gy + row * run.windows * kLanes;
      for (int64_t m = 0; m < run.windows; ++m, index += run.pixel, gy += kLanes) {
        const F t0 = signs.table(gy), t1 = signs.table(gy + kTableCodes);
        const int valid = run.valid[m];
        if (valid == kAll) {
          add_taps<kLines, kTaps, true>(sums, index, run.line, t0, t1, kAll);
        } else {
          add_taps<kLines, kTaps, false>(sums, index, run.line, t0, t1, valid);
        }
      }
    }
#pragma GCC unroll 9
    for (int t = 0; t < kLines * kTaps; ++t) {
      Lanes::store(run.sums + t * kLanes, sums[0][t]);
      Lanes::store(run.second_sums + t * kLanes, sums[1][t]);
    }
  }

  using Run = void (*)(const WeightRun& run);
  static Run run_of(int64_t lines, int64_t kw) {
    static constexpr Run kSmall[3][3] = {{&weight_run<1, 1>, &weight_run<2, 1>, &weight_run<3, 1>},
                                         {&weight_run<1, 2>, &weight_run<2, 2>, &weight_run<3, 2>},
                                         {&weight_run<1, 3>, &weight_run<2, 3>, &weight_run<3, 3>}};
    static constexpr Run kLine[4] = {&weight_run<1, 4>, &weight_run<1, 5>, &weight_run<1, 6>, &weight_run<1, 7>};
    if (kw >= 1 && kw <= 3) return lines >= 1 && lines <= 3 ? kSmall[kw - 1][lines - 1] : nullptr;
    return lines == 1 && kw <= 7 ? kLine[kw - 4] : nullptr;
  }
  static bool has_weights(int64_t lines, int64_t kw) { return run_of(lines, kw) != nullptr; }
  static void weights(const WeightRun& run) { run_of(run.lines, run.kw)(run); }

  static constexpr SignIsa isa() { return {&nibbles, &sign_row, &tables, &table_row, &has_weights, &weights, &mix}; }
};

}  // namespace bitgrad::kernels::conv
