#include "kernels/gemm/bits/nibble_kernels.h"

#include <algorithm>

#include "dtype/bit_tricks.h"

namespace bitgrad::kernels::gemm_detail {

void BitRows::read(Planes planes, int64_t r0, int64_t w0, int64_t step, uint32_t* first, uint32_t* second) const {
  const int64_t words = std::min(kPieceWords, panel_words(k) - w0);
  read_plane(0, r0, w0, words, step, first);
  if (planes == Planes::kBits) return;
  read_plane(1, r0, w0, words, step, second);
  for (int64_t w = 0; w < words; ++w) {
    const uint32_t keep = mask(w0 + w);
    for (int64_t l = 0; l < kPanelRows; ++l) {
      uint32_t &x = first[w * step + l], &y = second[w * step + l];
      const uint32_t p0 = x, negative = p0 & y;
      x = planes == Planes::kSigns ? ~negative & keep : negative;
      y = p0 & ~y;
    }
  }
}

uint32_t BitRows::mask(int64_t w) const {
  return static_cast<uint32_t>(detail::low_mask(std::min<int64_t>(k - 32 * w, 32)));
}

void BitRows::read_plane(int p, int64_t r0, int64_t w0, int64_t words, int64_t step, uint32_t* out) const {
  const int64_t count = std::min(kPanelRows, rows - r0);
  if (words < kPieceWords || count < kPanelRows)
    for (int64_t w = 0; w < kPieceWords; ++w) std::fill(out + w * step, out + w * step + kPanelRows, 0u);
  if (words <= 0 || count <= 0) return;
  if (panels) {
    const auto* lines = reinterpret_cast<const uint32_t*>(plane[p] + r0 / kPanelRows * stride) + w0 * kPanelRows;
    for (int64_t w = 0; w < words; ++w) std::copy_n(lines + w * kPanelRows, count, out + w * step);
  } else {
    for (int64_t l = 0; l < count; ++l) {
      const auto* row = reinterpret_cast<const uint32_t*>(plane[p] + (r0 + l) * stride) + w0;
      for (int64_t w = 0; w < words; ++w) out[w * step + l] = row[w];
    }
  }
  if (32 * (w0 + words) > k) {
    uint32_t* tail = out + (words - 1) * step;
    for (int64_t l = 0; l < count; ++l) tail[l] &= mask(w0 + words - 1);
  }
}

BitRows rows_of_a(const GemmArgs& args, bool ternary) {
  const auto* data = static_cast<const uint8_t*>(args.a.data);
  const int64_t stride = ternary ? 8 * plane_words(args.k) : args.a.stride;
  return {{data, ternary ? data + args.m * stride : nullptr}, stride, false, args.m, args.k};
}
BitRows rows_of_b(const GemmArgs& args, bool ternary) {
  const auto* data = static_cast<const uint8_t*>(args.b.data);
  const int64_t stride = panel_words(args.k) * kPanelRows * 4;
  return {{data, ternary ? data + panel_count(args.n) * stride : nullptr}, stride, true, args.n, args.k};
}

}  // namespace bitgrad::kernels::gemm_detail
