// The summation order of docs/numerics.md section 8 on the device, for any rule: 16 lanes per chunk of 1024, lanes
// joined (l,l+8) .. (l,l+1), chunks joined 2i with 2i+1 level by level, an odd one moving up. The order is defined on
// the elements, not the launch: bits do not depend on how work is divided into blocks.
//
// A rule is a struct:
//   using Value;                                            the type of the sums: 4 or 8 bytes
//   Value start();  Value join(Value a, Value b);           static, on the device
//   using Center;  Center center(int64_t j);                values shared by the elements of output j
//   void accumulate(Value& a, int64_t at, const Center& c, bool& nonfinite);   joins the element at offset `at` to a
//   void store(int64_t j, Value a);  void raise();          stores output j; reports an Inf or NaN element
#pragma once

#include "bitgrad/base/memory.h"
#include "cuda/device/vectors.h"
#include "cuda/kernels/launch.h"

namespace bitgrad::cuda::sums {

inline constexpr int64_t kChunk = 1024;
inline constexpr int kLanes = 16;
inline constexpr int kUnits = 32;         // most chunks per block of reduce_lanes
inline constexpr int64_t kJoined = 2048;  // partial results per block of join_partials
inline constexpr int64_t kManyBlocks = 256;
inline constexpr int kTile = 32;  // columns per block of reduce_columns

// The elements of each output: runs of `group` columns of a row, the last one possibly shorter; or (scattered) the
// whole matrix, row by row.
struct Sequences {
  int64_t outputs, per_row, cols, group, ldx;
  bool scattered;

  BITGRAD_DEVICE int64_t length(int64_t j) const {
    if (per_row == 1) return group;
    const int64_t left = cols - cell_of(j, per_row).col * group;
    return left < group ? left : group;
  }
  BITGRAD_DEVICE int64_t base(int64_t j) const {
    if (per_row == 1) return j * ldx;
    const Cell at = cell_of(j, per_row);
    return at.row * ldx + at.col * group;
  }
  BITGRAD_DEVICE int64_t offset(int64_t i) const {
    if (!scattered) return i;
    const Cell at = cell_of(i, cols);
    return at.row * ldx + at.col;
  }
};

BITGRAD_DEVICE inline float down(float v, int by, int width) { return __shfl_down_sync(0xFFFFFFFFu, v, by, width); }

// Joins the 16 lanes of each half warp. Lane 0 has the result.
template <typename Rule>
BITGRAD_DEVICE inline typename Rule::Value join_lanes(typename Rule::Value a) {
  for (int half = kLanes / 2; half >= 1; half /= 2) a = Rule::join(a, down(a, half, kLanes));
  return a;
}

// Each block processes `batch` consecutive chunks (a power of two, at most kUnits) for as many outputs as its units of
// 16 threads allow. Each output has `batches` batches; if there is more than one, each stores its result in
// partial[output * batches + batch].
template <typename Rule>
BITGRAD_GLOBAL void reduce_lanes(Rule rule, Sequences s, int batch, int64_t batches, typename Rule::Value* partial) {
  using Value = typename Rule::Value;
  __shared__ Value of_unit[kUnits];
  const int units = static_cast<int>(blockDim.x) / kLanes, unit = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const Cell block = cell_of(blockIdx.x, batches);
  const int64_t first = block.row * (units / batch);  // output of the block's first unit
  const int64_t j = first + unit / batch, chunk = block.col * batch + unit % batch;
  Value a = Rule::start();
  if (j < s.outputs) {
    const int64_t base = s.base(j), length = s.length(j), begin = chunk * kChunk;
    const int64_t end = begin + kChunk < length ? begin + kChunk : length;
    const auto center = rule.center(j);
    bool nonfinite = false;
#if defined(__CUDACC__)
#pragma unroll 16
#endif
    for (int64_t i = begin + lane; i < end; i += kLanes) rule.accumulate(a, base + s.offset(i), center, nonfinite);
    if (nonfinite) rule.raise();
  }
  a = join_lanes<Rule>(a);
  if (batch == 1) {
    if (lane == 0 && j < s.outputs) rule.store(j, a);
    return;
  }
  if (lane == 0) of_unit[unit] = a;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const int u = static_cast<int>(threadIdx.x), place = u % batch;
  const int64_t mine = first + u / batch;
  const bool live = u < units && mine < s.outputs;
  const int64_t count =
      live ? ceil_div(s.length(mine), kChunk) - block.col * batch : 0;  // chunks of the output from this batch on
  Value v = live ? of_unit[u] : Rule::start();
  for (int d = 1; d < batch; d *= 2) {
    const Value other = down(v, d, 32);
    if (place % (2 * d) == 0 && place + d < batch && place + d < count) v = Rule::join(v, other);
  }
  if (place != 0 || !live) return;
  if (batches == 1)
    rule.store(mine, v);
  else
    partial[mine * batches + block.col] = v;
}

// Sums down the rows: a block processes kTile columns of a chunk of rows, a thread one lane of a column.
template <typename Rule>
BITGRAD_GLOBAL void reduce_columns(Rule rule, int64_t rows, int64_t cols, int64_t ldx, int64_t chunks,
                                   typename Rule::Value* partial) {
  using Value = typename Rule::Value;
  __shared__ Value of_lane[kLanes][kTile];
  const int x = static_cast<int>(threadIdx.x) % kTile, lane = static_cast<int>(threadIdx.x) / kTile;
  const Cell block = cell_of(blockIdx.x, ceil_div(cols, kTile));
  const int64_t c = block.col * kTile + x, begin = block.row * kChunk;
  const int64_t end = begin + kChunk < rows ? begin + kChunk : rows;
  Value a = Rule::start();
  if (c < cols) {
    const auto center = rule.center(c);
    bool nonfinite = false;
#if defined(__CUDACC__)
#pragma unroll 8
#endif
    for (int64_t r = begin + lane; r < end; r += kLanes) rule.accumulate(a, r * ldx + c, center, nonfinite);
    if (nonfinite) rule.raise();
  }
  of_lane[lane][x] = a;
  for (int half = kLanes / 2; half >= 1; half /= 2) {
    __syncthreads();
    if (lane < half) of_lane[lane][x] = a = Rule::join(a, of_lane[lane + half][x]);
  }
  if (lane != 0 || c >= cols) return;
  if (chunks == 1)
    rule.store(c, a);
  else
    partial[c * chunks + block.row] = a;
}

// Joins partial results: output j has ceil(length(j) / covered) of them at in[j * stride]. A block joins kJoined.
template <typename Rule>
BITGRAD_GLOBAL void join_partials(Rule rule, Sequences s, int64_t covered, const typename Rule::Value* in,
                                  int64_t stride, int64_t blocks, typename Rule::Value* out) {
  using Value = typename Rule::Value;
  __shared__ Value part[kJoined];
  const Cell block = cell_of(blockIdx.x, blocks);
  const int64_t begin = block.col * kJoined, all = ceil_div(s.length(block.row), covered);
  const int64_t count = all - begin < kJoined ? all - begin : kJoined;
  if (count <= 0) return;  // a shorter output
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) part[i] = in[block.row * stride + begin + i];
  for (int64_t d = 1; d < count; d *= 2) {
    __syncthreads();
    for (int64_t i = 2 * d * threadIdx.x; i + d < count; i += 2 * d * blockDim.x)
      part[i] = Rule::join(part[i], part[i + d]);
  }
  if (threadIdx.x != 0) return;
  if (blocks == 1)
    rule.store(block.row, part[0]);
  else
    out[block.row * blocks + block.col] = part[0];
}

// Repeats join_partials until each output has one result. Each output has at most `max` partial results of `covered`
// elements.
template <typename Rule>
void run_join(const char* name, const Rule& rule, const Sequences& s, int64_t covered, const typename Rule::Value* in,
              int64_t max) {
  const int64_t blocks = ceil_div(max, kJoined);
  const Workspace space(blocks > 1 ? s.outputs * blocks * static_cast<int64_t>(sizeof(typename Rule::Value)) : 0);
  auto* const out = space.as<typename Rule::Value>();
  const int64_t threads = max < 2 * 256 ? ceil_div(ceil_div(max, 2), 32) * 32 : 256;
  const LaunchShape shape{{static_cast<unsigned>(s.outputs * blocks)}, {static_cast<unsigned>(threads)}, 0, 1, name};
  launch(join_partials<Rule>, shape, rule, s, covered, in, max, blocks, out);
  if (blocks > 1) run_join(name, rule, s, covered * kJoined, static_cast<const typename Rule::Value*>(out), blocks);
}

template <typename Rule>
void run_lanes(const char* name, const Rule& rule, const Sequences& s) {
  if (s.outputs == 0) return;
  const int64_t chunks = ceil_div(s.group, kChunk);  // of the longest output
  int batch = 1;
  while (batch < kUnits && batch < chunks) batch *= 2;
  // If there are partial results anyway, use more and smaller blocks until every multiprocessor has some.
  while (chunks > kUnits && batch > 2 && s.outputs * ceil_div(chunks, batch) < kManyBlocks) batch /= 2;
  const int64_t batches = chunks <= batch ? 1 : ceil_div(chunks, batch);
  int64_t units = kUnits;
  while (units > 2 && units / 2 >= s.outputs * batch) units /= 2;
  const int64_t blocks = ceil_div(s.outputs, units / batch) * batches;
  const Workspace space(batches > 1 ? s.outputs * batches * static_cast<int64_t>(sizeof(typename Rule::Value)) : 0);
  auto* const partial = space.as<typename Rule::Value>();
  const LaunchShape shape{{static_cast<unsigned>(blocks)}, {static_cast<unsigned>(units * kLanes)}, 0, 1, name};
  launch(reduce_lanes<Rule>, shape, rule, s, batch, batches, partial);
  if (batches > 1) run_join(name, rule, s, batch * kChunk, static_cast<const typename Rule::Value*>(partial), batches);
}

template <typename Rule>
void run_columns(const char* name, const Rule& rule, int64_t rows, int64_t cols, int64_t ldx) {
  if (cols == 0) return;
  const int64_t chunks = rows <= kChunk ? 1 : ceil_div(rows, kChunk);
  const Workspace space(chunks > 1 ? cols * chunks * static_cast<int64_t>(sizeof(typename Rule::Value)) : 0);
  auto* const partial = space.as<typename Rule::Value>();
  const LaunchShape shape{{static_cast<unsigned>(ceil_div(cols, kTile) * chunks)}, {kTile * kLanes}, 0, 1, name};
  launch(reduce_columns<Rule>, shape, rule, rows, cols, ldx, chunks, partial);
  const Sequences down_rows{cols, 1, rows, rows, 0, false};
  if (chunks > 1) run_join(name, rule, down_rows, kChunk, static_cast<const typename Rule::Value*>(partial), chunks);
}

}  // namespace bitgrad::cuda::sums
