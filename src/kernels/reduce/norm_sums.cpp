// Family reduce: the two sums of a normalisation's backward from one read (docs/numerics.md sections 6 and 8).
#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/kernel_table.h"
#include "kernels/cpu_kernels.h"
#include "kernels/reduce/loops.h"

namespace bitgrad::kernels {
namespace {

using namespace reduce_loops;

float add_up(float a, float v) { return a + v; }

void sums_of_all(const NormSumsArgs& args) {
  const auto chunk = loops().chunk_norm;
  const int64_t n = args.rows * args.cols, chunks = std::max<int64_t>(1, ceil_div(n, kChunk));
  const Workspace space(2 * chunks * static_cast<int64_t>(sizeof(float)));
  float* const part = space.as<float>();
  parallel_ranges(chunks, kTaskElements / kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      chunk(std::min(kChunk, n - k * kChunk), args.gy + k * kChunk, args.x + k * kChunk, *args.mean, *args.inv,
            part + 2 * k);
  });
  *args.sum_gy = join_chunks(add_up, part, chunks, 2);
  *args.sum_gy_xhat = join_chunks(add_up, part + 1, chunks, 2);
}

// Columns [c, c + n), n <= kColumnBlock.
void sums_of_columns(const NormSumsArgs& args, int64_t c, int64_t n) {
  const auto columns = loops().columns_norm;
  const int64_t chunks = std::max<int64_t>(1, ceil_div(args.rows, kChunk));
  const Workspace space(2 * chunks * kColumnBlock * static_cast<int64_t>(sizeof(float)));
  float *const sums = space.as<float>(), *const products = sums + chunks * kColumnBlock;
  for (int64_t k = 0; k < chunks; ++k) {
    const int64_t at = k * kChunk * args.cols + c;
    columns(std::min(kChunk, args.rows - k * kChunk), n, args.gy + at, args.x + at, args.cols, args.mean + c,
            args.inv + c, sums + k * kColumnBlock, products + k * kColumnBlock);
  }
  for (int64_t j = 0; j < n; ++j) {
    args.sum_gy[c + j] = join_chunks(add_up, sums + j, chunks, kColumnBlock);
    args.sum_gy_xhat[c + j] = join_chunks(add_up, products + j, chunks, kColumnBlock);
  }
}

}  // namespace

void cpu::norm_sums(const NormSumsArgs& args) {
  if (args.column_step == 0) return sums_of_all(args);
  const int64_t blocks = ceil_div(args.cols, kColumnBlock);
  const int64_t grain = std::max<int64_t>(1, kTaskElements / (kColumnBlock * std::max<int64_t>(1, args.rows)));
  parallel_ranges(blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      sums_of_columns(args, b * kColumnBlock, std::min(kColumnBlock, args.cols - b * kColumnBlock));
  });
}

}  // namespace bitgrad::kernels
