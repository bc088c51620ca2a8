// What a quantize call amounts to, determined before any element is read.
#pragma once

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/dtype.h"
#include "kernels/quantize.h"
#include "kernels/quantize/loops.h"

namespace bitgrad::kernels::quantize_loops {

// The levels of a codebook dtype in ascending order, and the bounds between them.

struct SortedLevels {
  std::vector<float> bounds;   // bounds[i]: the largest float that is at least as near to level i as to level i+1
  std::vector<uint8_t> codes;  // raw code of level i; of equal levels, the lowest raw code
  uint8_t zero = 0;            // raw code of the level nearest to 0
};
SortedLevels sort_levels(const DTypeInfo& info);

inline int32_t safe(int64_t code) { return static_cast<int32_t>(std::clamp<int64_t>(code, -(1 << 30), 1 << 30)); }

// Everything that is the same for all elements of a call. Throws if rule and dtype do not match.
struct Plan {
  explicit Plan(const QuantizeArgs& a) : info(a.dtype.info()) {
    ensure(a.dtype.is_code(), "quantize", "dtype ", a.dtype.name(), " has no codes");
    ensure((a.rule == CodeRule::kCodebook) == (info.kind == DTypeKind::kCodebook), "quantize", "rule ",
           static_cast<int>(a.rule), " does not fit dtype ", a.dtype.name());
    range = {safe(a.lo), safe(a.hi), (1u << info.bits) - 1u, info.kind == DTypeKind::kSign,
             code_parts(safe(a.lo), safe(a.hi))};
    if (info.kind == DTypeKind::kCodebook) levels = sort_levels(info);
    rounds = bitgrad::rounds(a.rule);
    stochastic = a.sr != nullptr && rounds && !range.sign;
    unit_mask = a.rule == CodeRule::kSign || a.rule == CodeRule::kPositive;
    clip = a.mask != nullptr && a.ste == SteRule::kClip && info.kind != DTypeKind::kCodebook;
    short_way = !stochastic && !clip && !range.sign;
  }
  const DTypeInfo& info;
  CodeRange range;
  SortedLevels levels;
  bool rounds, stochastic, unit_mask, clip, short_way;
};

// Whether a rule multiplies by 1/s.
constexpr bool multiplies(CodeRule rule) { return rule == CodeRule::kInverse || rule == CodeRule::kCodebook; }

}  // namespace bitgrad::kernels::quantize_loops
