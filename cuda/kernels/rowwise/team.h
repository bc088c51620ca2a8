// A team of threads processes a row: 16 threads if the row has one chunk, a block if it has more. Both reduce in the
// order of docs/numerics.md section 8: 16 lanes per chunk of 1024, lanes joined (l,l+8) .. (l,l+1), chunks joined 2i
// with 2i+1 level by level, an odd one moving up.
#pragma once

#include "bitgrad/base/error.h"
#include "cuda/device/builtins.h"
#include "cuda/device/vectors.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "kernels/map/map.h"
#include "kernels/map/pointwise.h"
#include "kernels/rowwise.h"

namespace bitgrad::cuda::rowwise {

// fp64 is supported on the CPU only.
inline void refuse_fp64(const FloatsIn& x, std::string_view name) {
  if (x.dtype == dtypes::fp64) bitgrad::detail::fail_fp64_on_device(name);
}

inline constexpr int64_t kChunk = 1024;
inline constexpr int kLanes = 16;
inline constexpr int kShortThreads = 128;  // per block of short rows: 8 teams
inline constexpr int kLongThreads = 512;   // per long row: 32 chunks at a time
inline constexpr int kJoined = 2048;       // chunk results in shared memory, i.e. chunks per batch
inline constexpr int kBatches = 64;        // most batches per row

struct alignas(8) TwoSums {
  float a, b;
};
BITGRAD_DEVICE inline TwoSums operator+(TwoSums x, TwoSums y) { return {x.a + y.a, x.b + y.b}; }

// The value from the lane `by` positions higher, and from the first, of 16.
template <typename Value>
BITGRAD_DEVICE inline Value lane_behind(Value v, int by) {
  return __shfl_down_sync(0xFFFFFFFFu, v, by, kLanes);
}
template <typename Value>
BITGRAD_DEVICE inline Value first_lane(Value v) {
  return __shfl_sync(0xFFFFFFFFu, v, 0, kLanes);
}
BITGRAD_DEVICE inline TwoSums lane_behind(TwoSums v, int by) { return {lane_behind(v.a, by), lane_behind(v.b, by)}; }
BITGRAD_DEVICE inline TwoSums first_lane(TwoSums v) { return {first_lane(v.a), first_lane(v.b)}; }

// Shared memory of a team's block.
template <typename Value, bool kLong>
struct Scratch {
  Value chunk[kLong ? kJoined : 1];
  Value batch[kLong ? kBatches : 1];
};

template <bool kLong>
struct Team {
  int64_t row, cols;
  bool live;  // the row exists; a team without a row still takes part in its warp's shuffles

  BITGRAD_DEVICE static Team of(int64_t rows, int64_t cols) {
    const int64_t row =
        kLong ? int64_t{blockIdx.x} : int64_t{blockIdx.x} * (kShortThreads / kLanes) + threadIdx.x / kLanes;
    return {row, cols, row < rows};
  }
  // A thread's elements if order does not matter: first(), first() + step(), ..
  BITGRAD_DEVICE int first() const { return static_cast<int>(kLong ? threadIdx.x : threadIdx.x % kLanes); }
  BITGRAD_DEVICE int step() const { return kLong ? kLongThreads : kLanes; }
  BITGRAD_DEVICE bool leads() const { return live && first() == 0; }
  // Calls body(i) for each of the thread's elements.
  template <typename Body>
  BITGRAD_DEVICE void each(Body&& body) const {
    if (!live) return;
    for (int64_t i = first(); i < cols; i += step()) body(i);
  }

  // Joins take(i) over the row, starting from `start`. Every thread of the team gets the result. All threads of the
  // block must call it. take(i) is called once for each i, by a thread of the team.
  template <typename Value, typename Join, typename Take>
  BITGRAD_DEVICE Value reduce(Scratch<Value, kLong>& scratch, Value start, Join&& join, Take&& take) const {
    if constexpr (!kLong) {
      const Value a = lanes(start, join, take, 0, live ? cols : 0);
      return first_lane(a);
    } else {
      const int64_t chunks = ceil_div(cols, kChunk), batches = ceil_div(chunks, kJoined);
      for (int64_t b = 0; b < batches; ++b) {
        const int64_t left = chunks - b * kJoined;
        const int count = static_cast<int>(left < kJoined ? left : kJoined);
        join_batch(scratch, start, join, take, b, count);
      }
      join_all(scratch.batch, static_cast<int>(batches), join);
      const Value out = scratch.batch[0];
      __syncthreads();
      return out;
    }
  }

 private:
  // Reduces elements [begin, end), at most one chunk, with a half warp. Its lane 0 has the result.
  template <typename Value, typename Join, typename Take>
  BITGRAD_DEVICE static Value lanes(Value start, Join& join, Take& take, int64_t begin, int64_t end) {
    Value a = start;
    for (int64_t i = begin + threadIdx.x % kLanes; i < end; i += kLanes) a = join(a, take(i));
    for (int half = kLanes / 2; half >= 1; half /= 2) a = join(a, lane_behind(a, half));
    return a;
  }
  // Reduces `count` adjacent values to values[0]. Any threads of the block may have written them.
  template <typename Value, typename Join>
  BITGRAD_DEVICE static void join_all(Value* values, int count, Join& join) {
    for (int d = 1; d < count; d *= 2) {
      __syncthreads();
      for (int i = 2 * d * static_cast<int>(threadIdx.x); i + d < count; i += 2 * d * kLongThreads)
        values[i] = join(values[i], values[i + d]);
    }
    __syncthreads();
  }
  template <typename Value, typename Join, typename Take>
  BITGRAD_DEVICE void join_batch(Scratch<Value, kLong>& scratch, Value start, Join& join, Take& take, int64_t b,
                                 int count) const {
    const int unit = static_cast<int>(threadIdx.x) / kLanes;
    // Both halves of a warp iterate together, because they shuffle together.
    for (int k0 = unit & ~1; k0 < count; k0 += kLongThreads / kLanes) {
      const int k = k0 + (unit & 1);
      const int64_t begin = (b * kJoined + k) * kChunk, end = begin + kChunk < cols ? begin + kChunk : cols;
      const Value a = lanes(start, join, take, begin, k < count ? end : begin);
      if (k < count && threadIdx.x % kLanes == 0) scratch.chunk[k] = a;
    }
    join_all(scratch.chunk, count, join);
    if (threadIdx.x == 0) scratch.batch[b] = scratch.chunk[0];
    __syncthreads();
  }
};

struct Add {
  template <typename Value>
  BITGRAD_DEVICE Value operator()(Value a, Value v) const {
    return a + v;
  }
};
struct Larger {
  template <typename Value>
  BITGRAD_DEVICE Value operator()(Value a, Value v) const {
    return v > a ? v : a;
  }
};

// Elements read as fp32.
struct Floats {
  const void* data;
  bool bf16;
  BITGRAD_DEVICE float operator[](int64_t i) const { return maps::load_float(data, bf16, i); }
};
inline Floats floats_of(const FloatsIn& x) { return {x.data, x.dtype == dtypes::bf16}; }
inline float* values_of(const FloatsOut& y) { return static_cast<float*>(y.data); }
inline const float* values_of(const FloatsIn& x) { return static_cast<const float*>(x.data); }

// Launches kernel<false> for short rows, kernel<true> for long ones.
template <typename Params>
void launch_rows(const char* name, void (*short_rows)(Params), void (*long_rows)(Params), int64_t rows, int64_t cols,
                 const Params& params) {
  if (rows == 0) return;
  constexpr int64_t kMost = kChunk * kJoined * kBatches;
  require(cols <= kMost, name, "a row has ", cols, " elements, a device supports at most ", kMost);
  const bool one_chunk = cols <= kChunk;
  const int64_t blocks = one_chunk ? ceil_div(rows, kShortThreads / kLanes) : rows;
  const LaunchShape shape{
      {static_cast<unsigned>(blocks)}, {static_cast<unsigned>(one_chunk ? kShortThreads : kLongThreads)}, 0, 1, name};
  launch(one_chunk ? short_rows : long_rows, shape, params);
}

// ---- integer targets of rows ----
struct Targets {
  const int32_t* classes;
  int32_t ignore;
  uint32_t* flags;

  BITGRAD_DEVICE bool ignored(int64_t row) const { return classes[row] == ignore; }
  // The class of a row that is not ignored. For an invalid target, sets the flag and returns 0.
  BITGRAD_DEVICE int64_t of(int64_t row, int64_t cols) const {
    const int32_t target = classes[row];
    if (target >= 0 && target < cols) return target;
    or_flag(flags, kFlagNoClass);
    return 0;
  }
};

}  // namespace bitgrad::cuda::rowwise
