// Maps: state of observers (src/quant/observer_*.cpp). `bad`: set if the batch contains NaN or Inf, which leaves the
// state unchanged; nullptr: the batch is known to be finite.
#pragma once

#include "kernels/map/numbers.h"
#include "kernels/map/pointwise.h"
#include "quant/map/list.h"

namespace bitgrad::maps {
namespace q {

BITGRAD_HD inline bool good(const uint32_t* bad) { return bad == nullptr || *bad == 0; }
// Clamps an end of a range to [-t, t]. Applied to both ends, so that a range entirely beyond t becomes a single point.
BITGRAD_HD inline float clip_end(float end, float t) { return end < -t ? -t : (t < end ? t : end); }

inline constexpr int64_t kHistogramBins = 2048;
inline constexpr int kHistogramLog2Bins = 11, kHistogramLowest = -100, kHistogramHighest = 128;
BITGRAD_HD inline int64_t histogram_exponent(int64_t e) {
  return e < kHistogramLowest ? kHistogramLowest : (e > kHistogramHighest ? kHistogramHighest : e);
}
// The smallest e with largest < 2^e.
BITGRAD_HD inline int64_t exponent_above(float largest) {
  return static_cast<int64_t>((bits_of(largest) >> 23) & 0xFFu) - 126;
}
// Bins per unit. abs x * inverse is exact, or so small that it falls into bin 0 either way.
BITGRAD_HD inline float histogram_inverse(int64_t exponent) {
  return static_cast<float>(pow2(kHistogramLog2Bins - exponent));
}
BITGRAD_HD inline int64_t histogram_bin(float x, float inverse) { return static_cast<int64_t>(magnitude(x) * inverse); }
BITGRAD_HD inline void count_one(int64_t* counter) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(counter), 1ull);
#else
  __atomic_fetch_add(counter, int64_t{1}, __ATOMIC_RELAXED);
#endif
}

}  // namespace q

// Updates the range of each block with the minima and maxima of one batch; the first batch sets the range.
// average: r = momentum * r + (1 - momentum) * new; otherwise the range widens. Zeros become +0, because the sign of a
// zero minimum depends on the order of comparisons.
struct ObserveRange {
  const float *new_low, *new_high;
  bool average;
  float momentum;
  const int64_t* batches;
  const uint32_t* bad;
  uint32_t* flags;  // receives kFlagNonFinite for a bad batch
  float *low, *high;
  BITGRAD_HD void operator()(int64_t j) const {
    if (!q::good(bad)) return or_flag(flags, kFlagNonFinite);
    const float l = new_low[j] + 0.0f, h = new_high[j] + 0.0f;
    if (*batches == 0) {
      low[j] = l;
      high[j] = h;
    } else if (average) {
      const float rest = 1.0f - momentum;
      low[j] = momentum * low[j] + rest * l;
      high[j] = momentum * high[j] + rest * h;
    } else {
      low[j] = q::smaller(low[j], l);
      high[j] = q::larger(high[j], h);
    }
  }
};

struct CountBatch {
  int64_t* batches;
  const uint32_t* bad;
  BITGRAD_HD void operator()(int64_t) const {
    if (q::good(bad)) *batches += 1;
  }
};

// Histograms (src/quant/observer_histogram.h), in three steps. Step 1: next[0] = number of powers of two by which the
// range must grow, next[1] = its exponent afterwards.
struct HistogramGrowth {
  const float *new_low, *new_high;
  const int64_t* exponent;
  const uint32_t* bad;
  int64_t* next;
  BITGRAD_HD void operator()(int64_t) const {
    const float largest = q::larger(q::magnitude(*new_low), q::magnitude(*new_high));
    const int64_t now = q::histogram_exponent(*exponent), needed = q::exponent_above(largest);
    const bool grows = q::good(bad) && needed > now;
    next[0] = !grows ? 0 : (needed - now < q::kHistogramLog2Bins ? needed - now : q::kHistogramLog2Bins);
    next[1] = grows ? needed : *exponent;
  }
};
// Step 2: merges 2^next[0] bins of a side into one.
struct HistogramMerge {
  const int64_t* counts;
  const int64_t* next;
  int64_t* merged;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t side = i / q::kHistogramBins * q::kHistogramBins, bin = i - side, width = int64_t{1} << next[0];
    int64_t sum = 0;
    for (int64_t k = bin * width; k < (bin + 1) * width && k < q::kHistogramBins; ++k) sum += counts[side + k];
    merged[i] = sum;
  }
};
// Step 3: stores the merged counts and the new exponent.
struct HistogramStore {
  const int64_t *merged, *next;
  int64_t *counts, *exponent;
  BITGRAD_HD void operator()(int64_t i) const {
    counts[i] = merged[i];
    if (i == 0) *exponent = next[1];
  }
};
// Counts element e of [rows, cols].
struct HistogramCount {
  int64_t cols, ldx;
  const void* x;
  bool bf16;
  const int64_t* exponent;
  int64_t negative;  // first bin of x < 0
  const uint32_t* bad;
  int64_t* counts;
  BITGRAD_HD void operator()(int64_t e) const {
    if (!q::good(bad)) return;
    const float v = load_float(x, bf16, e / cols * ldx + e % cols);
    const float inverse = q::histogram_inverse(q::histogram_exponent(*exponent));
    q::count_one(counts + q::histogram_bin(v, inverse) + (v < 0 ? negative : 0));
  }
};

// percentile: clips the range at the upper edge of the first bin at which the cumulative count reaches the percentile.
struct PercentileRange {
  const int64_t *counts, *exponent;
  double percentile;
  const float *low, *high;
  float *out_low, *out_high;
  BITGRAD_HD void operator()(int64_t) const {
    int64_t total = 0, sum = 0, bin = 0;
    for (int64_t i = 0; i < q::kHistogramBins; ++i) total += counts[i];
    const double wanted = percentile * static_cast<double>(total);
    for (; bin < q::kHistogramBins - 1; ++bin) {
      sum += counts[bin];
      if (100.0 * static_cast<double>(sum) >= wanted) break;
    }
    const int64_t e = q::histogram_exponent(*exponent) - q::kHistogramLog2Bins;
    const double edge = static_cast<double>(bin + 1) * q::pow2(e);
    const double largest = static_cast<double>(q::larger(q::magnitude(*low), q::magnitude(*high)));
    const float t = static_cast<float>(largest < edge ? largest : edge);
    *out_low = q::clip_end(*low, t);
    *out_high = q::clip_end(*high, t);
  }
};

// mse, in four steps. Step 1: centres and counts of the bins of x >= 0, followed by those of x < 0.
struct MseBins {
  const int64_t *counts, *exponent;
  float* centre;
  double* weight;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t bin = i % q::kHistogramBins, e = q::histogram_exponent(*exponent) - q::kHistogramLog2Bins;
    const float c = static_cast<float>((static_cast<double>(bin) + 0.5) * q::pow2(e));
    centre[i] = i < q::kHistogramBins ? c : -c;
    weight[i] = static_cast<double>(counts[i]);
  }
};
// Step 2: threshold k, t = a * (first + k) / 100, and the range clipped to it.
struct MseRanges {
  const float *low, *high;
  int64_t first;
  float *out_low, *out_high;
  BITGRAD_HD void operator()(int64_t k) const {
    const double largest = static_cast<double>(q::larger(q::magnitude(*low), q::magnitude(*high)));
    const float t = static_cast<float>(largest * static_cast<double>(first + k) / 100.0);
    out_low[k] = q::clip_end(*low, t);
    out_high[k] = q::clip_end(*high, t);
  }
};
// Copies one row into every row.
struct RepeatRow {
  const float* row;
  int64_t cols;
  float* out;
  BITGRAD_HD void operator()(int64_t e) const { out[e] = row[e % cols]; }
};
// Step 3: the error of each threshold.
struct MseErrors {
  const float *centre, *value;  // [bins], [thresholds, bins]
  const double* weight;
  int64_t bins;
  double* error;
  BITGRAD_HD void operator()(int64_t k) const {
    double sum = 0;
    for (int64_t i = 0; i < bins; ++i) {
      const double d = static_cast<double>(centre[i]) - static_cast<double>(value[k * bins + i]);
      sum += weight[i] * (d * d);
    }
    error[k] = sum;
  }
};
// Step 4: the range with the least error; on ties, the last one.
struct MseBest {
  const double* error;
  int64_t count;
  const float *lows, *highs;
  float *out_low, *out_high;
  BITGRAD_HD void operator()(int64_t) const {
    int64_t best = count - 1;
    for (int64_t k = count - 1; k-- > 0;)
      if (error[k] < error[best]) best = k;
    *out_low = lows[best];
    *out_high = highs[best];
  }
};

}  // namespace bitgrad::maps
