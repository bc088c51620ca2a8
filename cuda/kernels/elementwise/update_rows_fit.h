// Row scales in the sweep update_rows, which a team of threads computes from the new values of its row.
#pragma once

#include "cuda/kernels/elementwise/update_rows.h"
#include "cuda/kernels/reduce/sums.h"
#include "kernels/map/ranges.h"
#include "kernels/map/scales.h"

namespace bitgrad::cuda::sweep {

// A thread's place in its team, which is a warp or the whole block.
struct Seat {
  int thread, team;
  BITGRAD_DEVICE void meet() const {
    if (team == 32)
      __syncwarp();
    else
      __syncthreads();
  }
};

// Minimum and maximum; NaN is skipped.
struct Range {
  float low, high;
  BITGRAD_DEVICE static Range none() { return {__int_as_float(0x7F800000), -__int_as_float(0x7F800000)}; }
  BITGRAD_DEVICE void accumulate(float x) { join({x, x}); }
  BITGRAD_DEVICE void join(Range v) {
    low = v.low < low ? v.low : low;
    high = v.high > high ? v.high : high;
  }
};

// The range over all threads of the team, returned in each. The team must have synchronized since the previous row.
BITGRAD_DEVICE inline Range range_of_team(const Seat& seat, Range mine) {
  __shared__ Range of_warp[kSweepThreads / 32];
  for (int d = 16; d >= 1; d /= 2)
    mine.join({__shfl_xor_sync(0xFFFFFFFFu, mine.low, d), __shfl_xor_sync(0xFFFFFFFFu, mine.high, d)});
  if (seat.team == 32) return mine;
  if (seat.thread % 32 == 0) of_warp[seat.thread / 32] = mine;
  __syncthreads();
  for (int i = 0; i < kSweepThreads / 32; ++i) mine.join(of_warp[i]);
  return mine;
}

// The sum of term(x[i]), i < n, in the order of docs/numerics.md section 8, returned in each thread of the team. part
// is memory for the chunks that only this team uses.
template <typename Term>
BITGRAD_DEVICE inline float sum_of_team(const Seat& seat, const float* x, int64_t n, float* part, Term term) {
  const int64_t chunks = (n + sums::kChunk - 1) / sums::kChunk;
  const int lane = seat.thread % sums::kLanes, half = seat.thread / sums::kLanes % 2;
  for (int64_t first = seat.thread / 32 * 2; first < chunks; first += seat.team / sums::kLanes) {
    const int64_t begin = (first + half) * sums::kChunk, end = begin + sums::kChunk < n ? begin + sums::kChunk : n;
    float sum = 0.0f;
    for (int64_t i = begin + lane; i < end; i += sums::kLanes) sum = sum + term(x[i]);
    for (int d = sums::kLanes / 2; d >= 1; d /= 2) sum = sum + sums::down(sum, d, sums::kLanes);
    if (lane == 0 && first + half < chunks) part[first + half] = sum;
  }
  seat.meet();
  for (int64_t d = 1; d < chunks; d *= 2) {
    for (int64_t i = 2 * d * seat.thread; i + d < chunks; i += 2 * d * seat.team) part[i] = part[i] + part[i + d];
    seat.meet();
  }
  const float sum = part[0];
  seat.meet();
  return sum;
}

// Stores scale and zero point of row r computed from its range. Called by one thread.
BITGRAD_DEVICE inline void store_range(const SweepCall& call, int64_t r, const Range& range) {
  const RowFit& fit = call.fit;
  const maps::q::RangeBlocks block{&range.low,
                                   &range.high,
                                   fit.lo,
                                   fit.hi,
                                   fit.eps,
                                   {call.scale + r, call.codes.flags, fit.rounding},
                                   call.zero == nullptr ? nullptr : call.zero + r,
                                   nullptr};
  switch (fit.rule) {
    case RowFit::kAbsmax:
      return maps::AbsmaxScales{block}(0);
    case RowFit::kSymmetric:
      return maps::SymmetricScales{block}(0);
    case RowFit::kSymmetricNoClip:
      return maps::SymmetricNoClipScales{block}(0);
    default:
      return maps::AffineScales{block}(0);
  }
}

// Fits the scale of row r to the values x. range covers the values this thread has seen. The team must have
// synchronized after x was complete; it synchronizes again before returning, so that the scale can be read.
BITGRAD_DEVICE inline void fit_row(const SweepCall& call, const Seat& seat, int64_t r, const float* x, Range range) {
  const maps::q::BlockOut out{call.scale + r, call.codes.flags, call.fit.rounding};
  if (call.fit.rule < RowFit::kMeanAbs) {
    range = range_of_team(seat, range);
    if (seat.thread == 0) store_range(call, r, range);
  } else if (call.cols == 0) {
    if (seat.thread == 0) out.store(0, call.fit.eps);
  } else {
    float* const part = call.partial + r * call.chunks;
    const bool abs = call.fit.rule == RowFit::kMeanAbs;
    const float sum = sum_of_team(seat, x, call.cols, part,
                                  [abs](float v) { return abs ? (v < 0.0f ? -v : v) : (v > 0.0f ? v : 0.0f); });
    if (abs) {
      const maps::q::BlockSizes size{maps::q::BlockSizes::kRows, call.rows, call.cols, 0};
      if (seat.thread == 0) maps::BlockScales{&sum, size, true, 1.0f, 1.0f, call.fit.eps, out}(0);
    } else {
      const float count = sum_of_team(seat, x, call.cols, part, [](float v) { return v > 0.0f ? 1.0f : 0.0f; });
      if (seat.thread == 0) maps::MeanAboveScales{&sum, &count, call.fit.eps, out}(0);
    }
  }
  seat.meet();
}

}  // namespace bitgrad::cuda::sweep
