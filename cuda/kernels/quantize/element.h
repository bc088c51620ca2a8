// Codes of an octet on the device, using the expressions of the CPU loops (kernels/quantize/rounding.h, numbers.inc).
#pragma once

#include "bitgrad/base/math.h"
#include "cuda/device/philox.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/quantize/call.h"
#include "kernels/quantize/rounding.h"

namespace bitgrad::cuda {

// Scale, zero point and offset of consecutive elements of a row, loaded at the start of each group.
class Params {
 public:
  // invert: also compute 1/s.
  BITGRAD_DEVICE Params(const ScaleMap& map, int64_t r, int64_t c, bool invert) : map_(map), invert_(invert) {
    if (map.row_step != 0) at_ = (map.row_group == 1 ? r : cell_of(r, map.row_group).row) * map.row_step;
    if (map.col_step == 0) {
      left_ = 8;
    } else {
      const Cell group = map.col_group == 1 ? Cell{c, 0} : cell_of(c, map.col_group);
      at_ += group.row * map.col_step;
      left_ = map.col_group - group.col;
    }
    read();
  }
  // Moves to the next element. Only valid before the end of an octet.
  BITGRAD_DEVICE void advance() {
    if (--left_ != 0) return;
    at_ += map_.col_step;
    left_ = map_.col_step == 0 ? 8 : map_.col_group;
    read();
  }

  float scale = 1.0f, inverse = 1.0f, offset = 0.0f;
  int32_t zero = 0;

 private:
  BITGRAD_DEVICE void read() {
    if (map_.scale != nullptr) {
      scale = map_.scale[at_];
      if (invert_) inverse = 1.0f / scale;
    }
    if (map_.zero != nullptr) zero = map_.zero[at_];
    if (map_.offset != nullptr) offset = map_.offset[at_];
  }
  const ScaleMap& map_;
  int64_t at_ = 0, left_ = 0;
  bool invert_;
};

// Parameters shared by a whole row, with the same interface.
struct RowParams {
  float scale = 1.0f, inverse = 1.0f, offset = 0.0f;
  int32_t zero = 0;
  BITGRAD_DEVICE RowParams(const ScaleMap& map, int64_t r, bool invert) {
    const Params p(map, r, 0, invert);
    scale = p.scale;
    inverse = p.inverse;
    offset = p.offset;
    zero = p.zero;
  }
  BITGRAD_DEVICE void advance() {}
};

template <CodeRule kRule>
inline constexpr bool kInverts = kRule == CodeRule::kInverse || kRule == CodeRule::kCodebook;

// The value that the rule rounds.
template <CodeRule kRule, typename P>
BITGRAD_DEVICE inline float number_of(float x, const P& p) {
  [[maybe_unused]] const float s = p.scale, m = p.offset;
#define BITGRAD_CODE_NUMBER(rule, name, body) \
  if constexpr (kRule == CodeRule::rule) return body;
#include "kernels/quantize/numbers.inc"
#undef BITGRAD_CODE_NUMBER
  return x * p.inverse;
}

// Codebook levels as threads read them.
struct Levels {
  const float* bounds = nullptr;
  const uint8_t* codes = nullptr;
  int count = 0;

  // Raw code of the nearest level; ties go to the lower one, NaN to the lowest.
  BITGRAD_DEVICE uint32_t nearest(float u) const {
    int below = 0, end = count - 1;  // number of bounds below u: at least `below`, at most `end`
    while (below < end) {
      const int middle = (below + end) / 2;
      if (u > bounds[middle])
        below = middle + 1;
      else
        end = middle;
    }
    return codes[below];
  }
};

struct OctetCodes {
  uint64_t bytes = 0;  // raw codes
  uint32_t pass = 0;   // bits of the mask
  bool nonfinite = false;
};

// The code before clamping. draw is used only if the call is stochastic.
template <CodeRule kRule, typename P>
BITGRAD_DEVICE inline int32_t wide_code(const QuantizeCall& call, float x, const P& p, uint16_t draw) {
  const float u = number_of<kRule>(x, p);
  if constexpr (!rounds(kRule)) return quantize_loops::nearest_code(u, 0);
  if (call.stochastic)
    return quantize_loops::stochastic_code(u, static_cast<float>(p.zero), static_cast<float>(call.lo - 1),
                                           static_cast<float>(call.hi + 1), call.parts, draw);
  return quantize_loops::nearest_code(u, quantize_loops::safe_zero(p.zero));
}

// Rule clip: whether the code of x before clamping is in range (kSign, kPositive: |x| <= 1).
template <CodeRule kRule>
BITGRAD_DEVICE inline bool clip_passes(const QuantizeCall& call, float x, const Params& p) {
  if constexpr (kRule == CodeRule::kSign || kRule == CodeRule::kPositive) return (x < 0.0f ? -x : x) <= 1.0f;
  if (!quantize_loops::is_finite_number(x)) return false;
  const int32_t q = wide_code<kRule>(call, x, p, 0);
  return q >= call.lo && q <= call.hi;
}

// Codes of elements x of row r, starting at column c, a multiple of 8. Elements from `count` on have code 0 and do not
// pass. p has the parameters of the first element.
template <CodeRule kRule, typename P>
BITGRAD_DEVICE inline OctetCodes code_numbers(const QuantizeCall& call, const Levels& levels, int64_t r, int64_t c,
                                              int64_t count, const Numbers8& x, P p) {
  using namespace quantize_loops;
  OctetCodes out;
  Draws8 draws{};
  if (rounds(kRule) && call.stochastic)
    draws = draws8(call.draws, static_cast<uint64_t>(call.first_element + r * call.cols + c));
  for (int k = 0; k < 8; ++k) {
    if (k >= count) continue;
    if (k > 0) p.advance();
    uint32_t raw = call.nonfinite_code;
    bool pass = false;
    if (!is_finite_number(x.v[k])) {
      out.nonfinite = true;
    } else if constexpr (kRule == CodeRule::kCodebook) {
      raw = levels.nearest(number_of<kRule>(x.v[k], p));
    } else {
      const int32_t q = wide_code<kRule>(call, x.v[k], p, draws.v[k]), code = clamp_int(q, call.lo, call.hi);
      raw = call.sign ? static_cast<uint32_t>(q >= 0) : static_cast<uint32_t>(code) & call.code_mask;
      pass = kRule == CodeRule::kSign || kRule == CodeRule::kPositive ? (x.v[k] < 0.0f ? -x.v[k] : x.v[k]) <= 1.0f
                                                                      : code == q;
    }
    out.bytes |= static_cast<uint64_t>(raw) << (8 * k);
    out.pass |= static_cast<uint32_t>(pass || !call.clip) << k;
  }
  return out;
}

// Octet o of row r.
template <CodeRule kRule>
BITGRAD_DEVICE inline OctetCodes code_octet(const QuantizeCall& call, const Levels& levels, int64_t r, int64_t o) {
  const int64_t c = 8 * o, count = call.cols - c;
  if (count <= 0) return {};
  return code_numbers<kRule>(call, levels, r, c, count, load_octet_of_x(call, r, c, count),
                             Params(call.scale, r, c, kInverts<kRule>));
}

// The sum of the numbers of an octet's raw codes, of 8 bits or (the number of ones) of one bit.
BITGRAD_DEVICE inline int sum_codes(const QuantizeCall& call, uint64_t bytes) {
  if (call.codes.bits == 1) return __popcll(bytes);
  const auto low = static_cast<uint32_t>(bytes), high = static_cast<uint32_t>(bytes >> 32);
  constexpr uint32_t kOnes = 0x01010101;
  if (call.lo < 0)
    return __dp4a(static_cast<int>(low), static_cast<int>(kOnes),
                  __dp4a(static_cast<int>(high), static_cast<int>(kOnes), 0));
  return static_cast<int>(__dp4a(low, kOnes, __dp4a(high, kOnes, 0u)));
}

// Adds the part of each lane of a warp to the sums of their rows.
BITGRAD_DEVICE inline void add_row_sums(int32_t* sums, int64_t row, int part) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const int own = static_cast<int>(row);
  if (!__all_sync(kAll, own == __shfl_sync(kAll, own, 0))) {
    if (part != 0) atomicAdd(sums + row, part);
    return;
  }
  part = __reduce_add_sync(kAll, part);
  if (threadIdx.x % 32 == 0 && part != 0) atomicAdd(sums + row, part);
}
// f(i, at) processes octet i of [rows, cols], at row at.row and octet at.col of the row, and returns the sum of its
// codes (sum_codes).
template <typename F>
BITGRAD_DEVICE inline void for_octets(int64_t rows, int64_t cols, int32_t* row_sums, F f) {
  const int64_t octets = padded_octets(cols), all = rows * octets, lane = threadIdx.x % 32;
  for (int64_t i = thread_index(); i - lane < all; i += thread_count()) {  // whole warps
    const Cell at = cell_of(i, octets);
    const int part = i < all ? f(i, at) : 0;
    if (row_sums != nullptr) add_row_sums(row_sums, at.row, part);
  }
}

// Packs eight bytes of raw codes.
BITGRAD_DEVICE inline uint64_t gather_octet(uint64_t bytes, int bits) {
  uint64_t codes = 0;
  for (int k = 0; k < 8; ++k) codes |= ((bytes >> (8 * k)) & 255u) << (k * bits);
  return codes;
}

// Stores codes, mask and flag of an octet.
BITGRAD_DEVICE inline void store_codes(const QuantizeCall& call, int64_t r, int64_t o, const OctetCodes& codes) {
  store_octet(call.codes, r, o, gather_octet(codes.bytes, call.codes.bits));
  if (call.mask != nullptr) call.mask[r * padded_octets(call.cols) + o] = static_cast<uint8_t>(codes.pass);
  if (codes.nonfinite && call.flags != nullptr) atomicOr(call.flags, kFlagNonFinite);
}

}  // namespace bitgrad::cuda
