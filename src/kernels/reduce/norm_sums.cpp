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

// Rows [k * kChunk, ..) of the columns from c on.
void columns_of_chunk(const NormSumsArgs& args, int64_t k, int64_t c, float* sums, float* products) {
  const int64_t at = k * kChunk * args.cols + c;
  const NormColumns columns{args.gy + at,
                            args.x + at,
                            args.cols,
                            args.mean + c,
                            args.inv + c,
                            args.clip_gamma == nullptr ? nullptr : args.clip_gamma + c,
                            args.clip_gamma == nullptr ? nullptr : args.clip_beta + c};
  loops().columns_norm(std::min(kChunk, args.rows - k * kChunk), std::min(kColumnBlock, args.cols - c), columns, sums,
                       products);
}

}  // namespace

void cpu::norm_sums(const NormSumsArgs& args) {
  if (args.column_step == 0) return sums_of_all(args);
  const int64_t blocks = ceil_div(args.cols, kColumnBlock), chunks = std::max<int64_t>(1, ceil_div(args.rows, kChunk));
  const Workspace space(2 * blocks * chunks * kColumnBlock * static_cast<int64_t>(sizeof(float)));
  float *const sums = space.as<float>(), *const products = sums + blocks * chunks * kColumnBlock;
  const int64_t grain =
      std::max<int64_t>(1, kTaskElements / (kColumnBlock * std::clamp<int64_t>(args.rows, 1, kChunk)));
  parallel_ranges(blocks * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      columns_of_chunk(args, i % chunks, i / chunks * kColumnBlock, sums + i * kColumnBlock,
                       products + i * kColumnBlock);
  });
  for (int64_t c = 0; c < args.cols; ++c) {
    const int64_t at = c / kColumnBlock * chunks * kColumnBlock + c % kColumnBlock;
    args.sum_gy[c] = join_chunks(add_up, sums + at, chunks, kColumnBlock);
    args.sum_gy_xhat[c] = join_chunks(add_up, products + at, chunks, kColumnBlock);
  }
}

}  // namespace bitgrad::kernels
