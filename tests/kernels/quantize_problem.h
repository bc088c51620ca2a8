// Problems of family quantize with their own memory, and the formulas of docs/numerics.md spelled out in doubles.
#pragma once

#include "kernels/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "support/catch.h"
#include "support/draw_codes.h"
#include "support/everywhere.h"

namespace bitgrad::quantize_problem {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr uint8_t kGarbage = 0xA5;

// A problem with its own memory: parameters by granularity, garbage in every output.
struct Case {
  int64_t rows, cols, ldx;
  DType dtype;
  kernels::QuantizeArgs args;
  std::vector<float> x, scale, offset;
  std::vector<int32_t> zero;
  RandomStream stream{99, Purpose::kUser, 7, 3};
  std::vector<uint8_t> codes;
  std::vector<uint64_t> mask;
  uint32_t flags = 0;

  Case(int64_t r, int64_t c, DType d) : rows(r), cols(c), ldx(c + 3), dtype(d) {
    args.rows = rows;
    args.cols = cols;
    args.ldx = ldx;
    args.dtype = d;
    args.stride = row_bytes_memory(d, cols) + 16;
    args.ste = SteRule::kClip;
    const DTypeInfo& info = d.info();
    args.lo = info.qmin;
    args.hi = info.qmax;
    x.assign(static_cast<size_t>(rows * ldx + 1), 0.0f);
  }
  void run() {
    codes.assign(static_cast<size_t>(rows * args.stride + 1), kGarbage);
    mask.assign(static_cast<size_t>(rows * ((cols + 63) / 64) + 1), 0x5A5A5A5A5A5A5A5Aull);
    flags = 8;
    args.x = x.data();
    args.codes = codes.data();
    args.mask = mask.data();
    args.flags = &flags;
    args.scale.scale = scale.empty() ? nullptr : scale.data();
    args.scale.zero = zero.empty() ? nullptr : zero.data();
    args.scale.offset = offset.empty() ? nullptr : offset.data();
    quantize(args);
  }
  uint32_t raw(int64_t r, int64_t c) const { return load_raw(codes.data() + r * args.stride, c, dtype.bits()); }
  bool pass(int64_t r, int64_t c) const {
    return (mask[static_cast<size_t>(r * ((cols + 63) / 64) + c / 64)] >> (c % 64)) & 1;
  }
};

struct Expected {
  uint32_t raw;
  bool pass;
};

inline uint32_t nearest_level(const DTypeInfo& info, double u) {
  u = std::min(std::max(u, -1e6), 1e6);  // far outside of all levels, where the differences below are still exact
  uint32_t best = 0;
  for (uint32_t i = 1; i < info.levels.size(); ++i) {
    const double d = std::abs(u - info.levels[i]), e = std::abs(u - info.levels[best]);
    if (d < e || (d == e && info.levels[i] < info.levels[best])) best = i;
  }
  return best;
}

// docs/numerics.md section 2 and 7, one element.
inline Expected expect(const Case& c, int64_t row, int64_t col) {
  const float x = c.x[static_cast<size_t>(row * c.ldx + col)];
  const DTypeInfo& info = c.dtype.info();
  const bool clip = c.args.ste == SteRule::kClip, codebook = info.kind == DTypeKind::kCodebook,
             sign = info.kind == DTypeKind::kSign;
  if (!std::isfinite(x)) return {codebook ? nearest_level(info, 0.0) : 0u, !clip || codebook};
  const size_t at = static_cast<size_t>(c.args.scale.index(row, col));
  const float s = c.scale.empty() ? 1.0f : c.scale[at];
  const double z = c.zero.empty() ? 0.0 : c.zero[at];
  const float m = c.offset.empty() ? 0.0f : c.offset[at];
  const float inverse = 1.0f / s;
  if (codebook) return {nearest_level(info, static_cast<double>(x * inverse)), true};
  double u = 0, q = 0;
  bool rounds = true;
  switch (c.args.rule) {
    case CodeRule::kInverse:
      u = x * inverse;
      break;
    case CodeRule::kDivide:
      u = x / s;
      break;
    case CodeRule::kOffset:
      u = static_cast<float>(x - m) / s;
      break;
    case CodeRule::kTimes:
      u = x * s;
      break;
    case CodeRule::kTanh: {
      const float half = math::tanh(x) / (m + m);
      u = s * static_cast<float>(half + 0.5f);
      break;
    }
    case CodeRule::kSign:
      q = x < 0 ? -1 : 1, rounds = false;
      break;
    case CodeRule::kAtLeast:
      q = x < m ? -1 : 1, rounds = false;
      break;
    case CodeRule::kPositive:
      q = x > 0 ? 1 : 0, rounds = false;
      break;
    default:
      q = std::abs(x) > m ? (x > 0 ? 1 : -1) : 0, rounds = false;
  }
  if (rounds && c.args.sr != nullptr && !sign) {
    const float number = static_cast<float>(u) + static_cast<float>(z);
    q = static_cast<double>(
        test::code_by_draw(number, static_cast<double>(c.args.lo), static_cast<double>(c.args.hi),
                           c.args.sr->bits16(static_cast<uint64_t>(c.args.first_element + row * c.cols + col))));
  } else if (rounds) {
    q = std::nearbyint(u) + z;
  }
  const double lo = static_cast<double>(c.args.lo), hi = static_cast<double>(c.args.hi);
  bool pass = q >= lo && q <= hi;
  if (c.args.rule == CodeRule::kSign || c.args.rule == CodeRule::kPositive) pass = std::abs(x) <= 1.0f;
  if (sign) return {q >= 0 ? 1u : 0u, pass || !clip};
  const int64_t code = static_cast<int64_t>(std::min(std::max(q, lo), hi));
  return {static_cast<uint32_t>(code) & ((1u << info.bits) - 1u), pass || !clip};
}

// Counts what differs, so that a failure prints one line.
inline void check_against_formula(const Case& c) {
  int64_t wrong_codes = 0, wrong_masks = 0, dirty = 0;
  bool bad = false;
  const int64_t bits = c.dtype.bits(), used = row_bytes_memory(c.dtype, c.cols), words = (c.cols + 63) / 64;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t k = 0; k < c.cols; ++k) {
      const Expected e = expect(c, r, k);
      wrong_codes += c.raw(r, k) != e.raw;
      wrong_masks += c.pass(r, k) != e.pass;
      bad |= !std::isfinite(c.x[static_cast<size_t>(r * c.ldx + k)]);
    }
    const uint8_t* row = c.codes.data() + r * c.args.stride;
    for (int64_t b = c.cols * bits; b < used * 8; ++b) dirty += (row[b / 8] >> (b % 8)) & 1;
    for (int64_t b = used; b < c.args.stride; ++b) dirty += row[b] != kGarbage;
    for (int64_t b = c.cols; b < words * 64; ++b) dirty += c.pass(r, b);
  }
  INFO("dtype " << c.dtype.name() << " rule " << static_cast<int>(c.args.rule) << " rows " << c.rows << " cols "
                << c.cols << " stochastic " << (c.args.sr != nullptr));
  CHECK(wrong_codes == 0);
  CHECK(wrong_masks == 0);
  CHECK(dirty == 0);
  CHECK(c.flags == (bad ? 8u | kFlagNonFinite : 8u));
  CHECK(c.codes.back() == kGarbage);
  CHECK(c.mask.back() == 0x5A5A5A5A5A5A5A5Aull);
}

inline void fill_numbers(Case& c, std::mt19937& random, float typical, bool nonfinite) {
  static constexpr float kSpecial[] = {0.0f,   -0.0f, 1.0f,  -1.0f, 1e-45f,     -1e-40f,   3e38f,
                                       -3e38f, 0.5f,  -0.5f, 1.5f,  1.0000001f, 8388609.0f};
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (float& v : c.x) {
    const uint32_t kind = random() % 16;
    v = normal(random) * typical;
    if (kind == 0) v = kSpecial[random() % std::size(kSpecial)];
    if (kind == 1) v = typical * (static_cast<float>(random() % 9) - 4.5f) * 0.5f;  // ties
    if (kind == 2 && nonfinite) v = random() % 3 == 0 ? kNan : (random() % 2 == 0 ? kInf : -kInf);
  }
}

enum Granularity { kNoScale, kTensor, kRow, kColumn, kGroup5, kGroup64, kBlocks };

inline void set_scales(Case& c, std::mt19937& random, Granularity g) {
  ScaleMap& map = c.args.scale;
  const int64_t groups5 = (c.cols + 4) / 5, groups64 = (c.cols + 63) / 64;
  int64_t count = g == kNoScale ? 0 : 1;
  if (g == kRow) map.row_step = 1, count = c.rows;
  if (g == kColumn) map.col_step = 1, count = c.cols;
  if (g == kGroup5) map.row_step = groups5, map.col_step = 1, map.col_group = 5, count = c.rows * groups5;
  if (g == kGroup64) map.row_step = groups64, map.col_step = 1, map.col_group = 64, count = c.rows * groups64;
  if (g == kBlocks)
    map.row_step = 1, map.row_group = 2, map.col_step = (c.rows + 1) / 2, map.col_group = 7,
    count = (c.cols / 7 + 1) * ((c.rows + 1) / 2);
  for (int64_t i = 0; i < count; ++i) {
    c.scale.push_back(std::ldexp(1.0f + static_cast<float>(random() % 1000) * 1e-3f, -static_cast<int>(random() % 4)));
    c.offset.push_back(static_cast<float>(random() % 17) * 0.1f - 0.8f);
    c.zero.push_back(static_cast<int32_t>(random() % 9) - 4);
  }
  if (c.args.rule == CodeRule::kTanh) {  // the largest tanh of a block is positive
    if (g == kNoScale) c.offset.push_back(0.7f);
    for (float& m : c.offset) m = std::abs(m) + 0.05f;
  }
  if (g == kTensor && random() % 2 == 0 && c.args.rule != CodeRule::kThreshold) c.scale[0] = 1.0f;
}

inline std::vector<CodeRule> rules_of(DType dtype) {
  if (dtype.kind() == DTypeKind::kCodebook) return {CodeRule::kCodebook};
  return {CodeRule::kInverse, CodeRule::kDivide,  CodeRule::kOffset,   CodeRule::kTimes,    CodeRule::kTanh,
          CodeRule::kSign,    CodeRule::kAtLeast, CodeRule::kPositive, CodeRule::kThreshold};
}

inline const std::vector<IsaLevel> kLevels = test::isa_levels();

}  // namespace bitgrad::quantize_problem
