#include "dtype/split_pairs.h"

#include <cstring>

#include "bitgrad/base/cpu.h"
#include "dtype/bit_tricks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bitgrad::detail {
namespace {

void split_scalar(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high) {
  for (int64_t w = 0; w < words; ++w) {
    uint64_t pair[2];
    std::memcpy(pair, in + 16 * w, 16);
    const uint64_t a = unshuffle(pair[0]), b = unshuffle(pair[1]);
    low[w] = (a & 0xFFFFFFFFu) | (b << 32);
    high[w] = (a >> 32) | (b & ~uint64_t{0xFFFFFFFFu});
  }
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("bmi2")
void split_bmi2(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high) {
  constexpr uint64_t kEven = 0x5555555555555555u;
  for (int64_t w = 0; w < words; ++w) {
    uint64_t pair[2];
    __builtin_memcpy(pair, in + 16 * w, 16);
    low[w] = _pext_u64(pair[0], kEven) | _pext_u64(pair[1], kEven) << 32;
    high[w] = _pext_u64(pair[0], ~kEven) | _pext_u64(pair[1], ~kEven) << 32;
  }
}
#pragma GCC pop_options
#endif

}  // namespace

void split_pairs(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high) {
#if defined(__x86_64__)
  if ((cpu_isa() & isa::kAvx2) != 0) return split_bmi2(words, in, low, high);
#endif
  split_scalar(words, in, low, high);
}

}  // namespace bitgrad::detail
