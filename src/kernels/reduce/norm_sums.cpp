// Family reduce: the two sums of the backward of normalization in a single read (docs/numerics.md sections 6 and 8).
#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise/floats.h"
#include "kernels/kernel_table.h"
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
    float g[kChunk], x[kChunk];
    for (int64_t k = begin; k < end; ++k) {
      const int64_t at = k * kChunk, count = std::min(kChunk, n - at);
      chunk(count, read_floats(args.gy, at, count, g), read_floats(args.x, at, count, x), *args.mean, *args.inv,
            part + 2 * k);
    }
  });
  *args.sum_gy = join_chunks(add_up, part, chunks, 2);
  *args.sum_gy_xhat = join_chunks(add_up, part + 1, chunks, 2);
}

// Mask bits of all elements, and where the masked gradients are written.
struct Masking {
  const uint64_t* bits = nullptr;
  float* masked = nullptr;
};

// Rows from k * kChunk on, for the columns from c on.
void columns_of_chunk(const NormSumsArgs& args, const Masking& m, int64_t k, int64_t c, float* sums, float* products) {
  const int64_t at = k * kChunk * args.cols + c;
  NormColumns columns{args.gy.from(at).data,
                      args.x.from(at).data,
                      args.gy.bf16(),
                      args.x.bf16(),
                      args.cols,
                      args.mean + c,
                      args.inv + c,
                      args.clip_gamma == nullptr ? nullptr : args.clip_gamma + c,
                      args.clip_gamma == nullptr ? nullptr : args.clip_beta + c};
  if (m.bits != nullptr) {
    columns.bits = m.bits + at / 64;
    columns.masked = m.masked + at;
  }
  loops().columns_norm(std::min(kChunk, args.rows - k * kChunk), std::min(kColumnBlock, args.cols - c), columns, sums,
                       products);
}

void join_columns(const NormSumsArgs& args, int64_t chunks, float* sums, float* products) {
  for (int64_t c = 0; c < args.cols; ++c) {
    const int64_t at = c / kColumnBlock * chunks * kColumnBlock + c % kColumnBlock;
    args.sum_gy[c] = join_chunks(add_up, sums + at, chunks, kColumnBlock);
    args.sum_gy_xhat[c] = join_chunks(add_up, products + at, chunks, kColumnBlock);
  }
}

void sums_of_columns(const NormSumsArgs& args, const Masking& masking) {
  const int64_t blocks = ceil_div(args.cols, kColumnBlock), chunks = std::max<int64_t>(1, ceil_div(args.rows, kChunk));
  const Workspace space(2 * blocks * chunks * kColumnBlock * static_cast<int64_t>(sizeof(float)));
  float *const sums = space.as<float>(), *const products = sums + blocks * chunks * kColumnBlock;
  const int64_t grain =
      std::max<int64_t>(1, kTaskElements / (kColumnBlock * std::clamp<int64_t>(args.rows, 1, kChunk)));
  parallel_ranges(blocks * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      columns_of_chunk(args, masking, i % chunks, i / chunks * kColumnBlock, sums + i * kColumnBlock,
                       products + i * kColumnBlock);
  });
  join_columns(args, chunks, sums, products);
}

}  // namespace

void cpu::norm_sums(const NormSumsArgs& args) { args.column_step == 0 ? sums_of_all(args) : sums_of_columns(args, {}); }

void cpu::norm_sums_of_bits(const NormSumsArgs& args, const uint64_t* bits, float* masked) {
  if (args.column_step != 0 && norm_takes_bits(args.cols)) return sums_of_columns(args, {bits, masked});
  times_bits(args.rows * args.cols, args.gy.fp32(), bits, masked);
  NormSumsArgs sums = args;
  sums.gy = masked;
  cpu::norm_sums(sums);
}

// A chunk of pixels may begin and end anywhere within rows, so whole rows are computed.
void cpu::norm_sums_of_pool(const NormSumsArgs& args, const MaxPoolGradientArgs& pool) {
  const int64_t blocks = ceil_div(args.cols, kColumnBlock), chunks = std::max<int64_t>(1, ceil_div(args.rows, kChunk));
  const Workspace space(2 * blocks * chunks * kColumnBlock * static_cast<int64_t>(sizeof(float)));
  float *const sums = space.as<float>(), *const products = sums + blocks * chunks * kColumnBlock;
  const int64_t w = pool.geometry.w;
  parallel_ranges(chunks, 1, [&](int64_t first, int64_t last) {
    const Workspace rows((kChunk + 2 * w) * args.cols * static_cast<int64_t>(sizeof(float)));
    for (int64_t k = first; k < last; ++k) {
      const int64_t begin = k * kChunk, end = std::min(args.rows, begin + kChunk), row = begin / w;
      max_pool_gradient_rows(pool, row, ceil_div(end, w), rows.as<float>());
      NormSumsArgs part = args;
      part.rows = end - begin;
      part.gy = rows.as<float>() + (begin - row * w) * args.cols;
      part.x = args.x.from(begin * args.cols);
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t at = (b * chunks + k) * kColumnBlock;
        columns_of_chunk(part, {}, 0, b * kColumnBlock, sums + at, products + at);
      }
    }
  });
  join_columns(args, chunks, sums, products);
}

}  // namespace bitgrad::kernels
