// Popcount products in plain C++: bits are summed within bytes (Warren, "Hacker's Delight", 2nd ed., chapter 5), and
// bytes are summed once every 31 words.
#include <bit>

#include "kernels/gemm/bits/popcount.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int kLanes = static_cast<int>(kPanelRows);
constexpr int64_t kFlush = 31;  // 31 * 8 = 248 fits in a byte

// The number of set bits in each byte.
uint32_t byte_counts(uint32_t x) {
  x -= (x >> 1) & 0x55555555u;
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  return (x + (x >> 4)) & 0x0F0F0F0Fu;
}
int32_t sum_of_bytes(uint32_t x) {
  x = (x & 0x00FF00FFu) + ((x >> 8) & 0x00FF00FFu);
  return static_cast<int32_t>((x & 0xFFFFu) + (x >> 16));
}

// The bits of the first and the second sum. `keep` masks off bits beyond k.
struct Words {
  uint32_t plus, minus;
};
Words words_of(DotB1B1, uint32_t a0, uint32_t, uint32_t b0, uint32_t, uint32_t keep) { return {(a0 ^ b0) & keep, 0}; }
Words words_of(DotTB1, uint32_t a0, uint32_t a1, uint32_t b0, uint32_t, uint32_t keep) {
  return {a0 & (a1 ^ b0) & keep, 0};
}
Words words_of(DotTT, uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1, uint32_t keep) {
  const uint32_t both = a0 & b0 & keep;
  return {both, both & (a1 ^ b1)};
}
template <int high>
Words words_of(DotQ2B1<high>, uint32_t a0, uint32_t a1, uint32_t b0, uint32_t, uint32_t keep) {
  return {a0 & b0 & keep, a1 & b0 & keep};
}

template <typename Dot>
void count_words(const uint32_t* a0, const uint32_t* a1, const uint32_t* b0, const uint32_t* b1, int64_t words,
                 uint32_t keep, int32_t* counts) {
  uint32_t plus[kLanes] = {}, minus[kLanes] = {};
  for (int64_t w = 0; w < words; ++w) {
    const uint32_t x1 = Dot::kPlanesA == 2 ? a1[w] : 0;
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t y1 = Dot::kPlanesB == 2 ? b1[w * kLanes + l] : 0;
      const Words t = words_of(Dot{}, a0[w], x1, b0[w * kLanes + l], y1, keep);
      plus[l] += byte_counts(t.plus);
      if constexpr (Dot::kSums == 2) minus[l] += byte_counts(t.minus);
    }
  }
  for (int l = 0; l < kLanes; ++l) counts[l] += sum_of_bytes(plus[l]) + Dot::kHigh * sum_of_bytes(minus[l]);
}

template <typename Dot>
void tile_scalar(int, int, const BitTile& t) {
  const uint32_t *a0 = t.a[0], *a1 = t.a[1], *b0 = t.b[0], *b1 = t.b[1];
  int32_t counts[kLanes] = {};
  const auto count = [&](int64_t from, int64_t words, uint32_t keep) {
    count_words<Dot>(a0 + from, a1 == nullptr ? nullptr : a1 + from, b0 + from * kLanes,
                     b1 == nullptr ? nullptr : b1 + from * kLanes, words, keep, counts);
  };
  for (int64_t w = 0; w < t.words; w += kFlush) count(w, t.words - w < kFlush ? t.words - w : kFlush, ~0u);
  if (t.tail != 0) count(t.words, 1, t.tail);
  for (int l = 0; l < kLanes; ++l) t.dots[l] = t.base[0] + Dot::kFactor * counts[l];
}

int32_t count_row_scalar(const uint32_t* row, int64_t words, uint32_t tail) {
  int32_t count = 0;
  for (int64_t w = 0; w < words; ++w) count += std::popcount(row[w]);
  return tail == 0 ? count : count + std::popcount(row[words] & tail);
}

template <typename Dot>
constexpr BitKernel kKernel{1, 1, &tile_scalar<Dot>, &count_row_scalar, false};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_POPCOUNT_KERNEL(gemm_b1_b1_i32_popcount_scalar, DotB1B1, 90, kReferenceCost)
BITGRAD_POPCOUNT_KERNEL(gemm_t_b1_i32_popcount_scalar, DotTB1, 55, kReferenceCost)
BITGRAD_POPCOUNT_KERNEL(gemm_t_t_i32_popcount_scalar, DotTT, 45, kReferenceCost)
BITGRAD_POPCOUNT_KERNEL(gemm_i2_b1_i32_popcount_scalar, DotI2B1, 45, kReferenceCost)
BITGRAD_POPCOUNT_KERNEL(gemm_u2_b1_i32_popcount_scalar, DotU2B1, 45, kReferenceCost)

}  // namespace bitgrad::kernels::gemm_impl
