// Batch norm of integers with a scale: exact sums, statistics of the values, and y. docs/numerics.md section 6.
#pragma once

#include <cmath>

#include "bitgrad/base/math.h"
#include "ops/map/exact.h"
#include "ops/map/linear.h"

namespace bitgrad::maps {
namespace integer_norm {

constexpr int64_t kRows = 256;                // rows per part of the sums
constexpr int64_t kColumns = 64;              // most columns per part
constexpr int32_t kSmall = int32_t{1} << 22;  // 256 squares of smaller integers sum exactly in double

// Sums of a column: of q, and of q^2 = high * 2^32 + low. Exact for any int32 with fewer than 2^31 rows.
struct Sums {
  int64_t *sum, *low, *high;
};

BITGRAD_HD inline int64_t rounded_quotient(int64_t a, int64_t n) {
  return a >= 0 ? (a + n / 2) / n : -((-a + n / 2) / n);
}

}  // namespace integer_norm

// Adds the sums of one part of the rows and columns. largest: the bitwise OR of all q, with ~q in place of negative q;
// all integers fit in as many bits and a sign. Index: row part * column_parts() + column part.
struct IntegerSums {
  const int32_t* q;
  int64_t rows, cols, columns;  // columns: per part
  integer_norm::Sums out;
  uint32_t* largest;

  BITGRAD_HD int64_t column_parts() const { return (cols + columns - 1) / columns; }
  BITGRAD_HD int64_t parts() const { return (rows + integer_norm::kRows - 1) / integer_norm::kRows * column_parts(); }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r0 = i / column_parts() * integer_norm::kRows, c0 = i % column_parts() * columns;
    const int64_t r1 = r0 + integer_norm::kRows < rows ? r0 + integer_norm::kRows : rows;
    const int64_t n = cols - c0 < columns ? cols - c0 : columns;
    double sum[integer_norm::kColumns], squares[integer_norm::kColumns];
    uint32_t bits[integer_norm::kColumns];
    for (int64_t j = 0; j < n; ++j) {
      sum[j] = squares[j] = 0;
      bits[j] = 0;
    }
    for (int64_t r = r0; r < r1; ++r) {
      const int32_t* const row = q + r * cols + c0;
      for (int64_t j = 0; j < n; ++j) {
        const auto v = static_cast<double>(row[j]);
        sum[j] += v;
        squares[j] += v * v;
        bits[j] |= static_cast<uint32_t>(row[j] ^ (row[j] >> 31));
      }
    }
    uint32_t any = 0;
    for (int64_t j = 0; j < n; ++j) any |= bits[j];
    or_flag(largest, any);
    if (any >= static_cast<uint32_t>(integer_norm::kSmall)) return add_large(r0, r1, c0, n);
    for (int64_t j = 0; j < n; ++j) {
      const auto square = static_cast<int64_t>(squares[j]);
      add(c0 + j, static_cast<int64_t>(sum[j]), square & 0xFFFFFFFF, square >> 32);
    }
  }
  BITGRAD_HD void add(int64_t c, int64_t sum, int64_t low, int64_t high) const {
    add_exact(out.sum + c, sum);
    add_exact(out.low + c, low);
    add_exact(out.high + c, high);
  }
  BITGRAD_HD void add_large(int64_t r0, int64_t r1, int64_t c0, int64_t n) const {
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0, low = 0, high = 0;
      for (int64_t r = r0; r < r1; ++r) {
        const int64_t v = q[r * cols + c0 + j], square = v * v;
        sum += v;
        low += square & 0xFFFFFFFF;
        high += square >> 32;
      }
      add(c0 + j, sum, low, high);
    }
  }
};

// mean = fp32(s * mean q), var = fp32(s^2 * var q), both from exact sums, in double; inv = 1/sqrt(var + eps); updates
// running statistics if given. Index: column.
struct IntegerStatistics {
  integer_norm::Sums sums;
  int64_t rows;
  const float* scale;  // nullptr means 1
  int64_t scale_step;
  float eps;
  float *mean, *inv;
  float *running_mean, *running_var;  // nullptr if not tracked
  float momentum;

  BITGRAD_HD void operator()(int64_t j) const {
    // Deviations from an integer k close to the mean: their sums are exact, and nothing cancels in double.
    const int64_t k = integer_norm::rounded_quotient(sums.sum[j], rows), first = sums.sum[j] - rows * k;
    const exact::Int128 all = static_cast<exact::Int128>(sums.high[j]) * (int64_t{1} << 32) + sums.low[j];
    const exact::Int128 second = all - static_cast<exact::Int128>(k) * (sums.sum[j] + first);
    const auto n = static_cast<double>(rows), d = static_cast<double>(first);
    const double s = scale == nullptr ? 1.0 : static_cast<double>(scale[j * scale_step]);
    const double left = static_cast<double>(second) - d * d / n, deviations = left > 0 ? left : 0.0;
    mean[j] = static_cast<float>((static_cast<double>(k) + d / n) * s);
    const double scaled = deviations * (s * s);
    inv[j] = 1.0f / std::sqrt(static_cast<float>(scaled / n) + eps);
    if (running_mean == nullptr) return;
    const double unbiased = rows > 1 ? n - 1 : 1.0;
    running_mean[j] = math::lerp(running_mean[j], mean[j], momentum, 1.0f - momentum);
    running_var[j] = math::lerp(running_var[j], static_cast<float>(scaled / unbiased), momentum, 1.0f - momentum);
  }
};

// y = ((q * s - mean) * inv) * gamma + beta, and q in 16 bits. Index: row * runs() + run of columns.
struct IntegerNormalize {
  const int32_t* q;
  int64_t cols, run;
  const float* scale;
  int64_t scale_step;
  const float *mean, *inv, *gamma, *beta;
  float* y;
  int16_t* narrow;  // nullptr if not wanted

  BITGRAD_HD int64_t runs() const { return (cols + run - 1) / run; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t row = i / runs(), c0 = (i - row * runs()) * run, c1 = c0 + run < cols ? c0 + run : cols;
    const int32_t* const from = q + row * cols;
    float* const to = y + row * cols;
    if (scale == nullptr || scale_step == 0) {
      const float s = scale == nullptr ? 1.0f : *scale;
      for (int64_t c = c0; c < c1; ++c)
        to[c] = ((static_cast<float>(from[c]) * s - mean[c]) * inv[c]) * gamma[c] + beta[c];
    } else {
      for (int64_t c = c0; c < c1; ++c)
        to[c] = ((static_cast<float>(from[c]) * scale[c] - mean[c]) * inv[c]) * gamma[c] + beta[c];
    }
    if (narrow == nullptr) return;
    for (int64_t c = c0; c < c1; ++c) narrow[row * cols + c] = static_cast<int16_t>(from[c]);
  }
};

// Values of integers saved in 16 bits: q * s. Index: row.
struct NarrowValues {
  const int16_t* q;
  int64_t cols;
  const float* scale;
  int64_t scale_step;
  float* out;

  BITGRAD_HD void operator()(int64_t row) const {
    const int16_t* const from = q + row * cols;
    float* const to = out + row * cols;
    if (scale == nullptr || scale_step == 0) {
      const float s = scale == nullptr ? 1.0f : *scale;
      for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<float>(from[c]) * s;
    } else {
      for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<float>(from[c]) * scale[c];
    }
  }
};

}  // namespace bitgrad::maps
