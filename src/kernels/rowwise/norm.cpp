// Family rowwise: layer norm and RMS norm, and their backward.
#include <cmath>

#include "kernels/kernel_table.h"
#include "kernels/rowwise.h"
#include "kernels/rowwise/rows.h"

namespace bitgrad::kernels {

using namespace rowwise;

void cpu::norm_rows(const NormRowsArgs& args) {
  if (is_fp64(args.x)) return norm_fp64(args);
  const int64_t cols = args.cols;
  const auto count = static_cast<float>(cols);
  for_ranges_of_rows(args.rows, cols, 2, [&](int64_t begin, int64_t end, float* space) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const x = read_floats(args.x, r * cols, cols, space);
      NormRow row;
      if (args.centered) row.mean = floats(args.mean)[r] = reduce_row(ReduceRule::kSum, x, cols) / count;
      const float squares = reduce_row(ReduceRule::kSumSquaredDiff, x, cols, nullptr, row.mean);
      row.inv = floats(args.inv)[r] = 1.0f / std::sqrt(squares / count + args.eps);
      float* const y = place_floats(args.y, r * cols, space + cols);
      loops().norm(cols, x, row, floats(args.gamma), floats(args.beta), y);
      write_floats(args.y, r * cols, cols, y);
    }
  });
}

namespace {

struct TwoSums {
  float h = 0, h_xhat = 0;
};
TwoSums added(TwoSums a, TwoSums b) { return {a.h + b.h, a.h_xhat + b.h_xhat}; }

void input_gradients(const NormRowsBackwardArgs& args) {
  const int64_t cols = args.cols;
  const auto count = static_cast<float>(cols);
  for_ranges_of_rows(args.rows, cols, 3, [&](int64_t begin, int64_t end, float* space) {
    float* const h = space + 2 * cols;
    for (int64_t r = begin; r < end; ++r) {
      const float* const x = read_floats(args.x, r * cols, cols, space);
      const float* const gy = read_floats(args.gy, r * cols, cols, space + cols);
      elementwise::loops().mul(cols, gy, floats(args.gamma), h);
      NormRow row{args.centered ? floats(args.mean)[r] : 0.0f, floats(args.inv)[r], 0, 0};
      const auto chunk = [&](int64_t first, int64_t n) {
        float sums[2];
        reduce_loops::loops().chunk_norm(n, h + first, x + first, row.mean, row.inv, sums);
        return TwoSums{sums[0], sums[1]};
      };
      const TwoSums sums = join_chunks_of_row<TwoSums>(cols, chunk, added);
      if (args.centered) row.mean_h = sums.h / count;
      row.mean_h_xhat = sums.h_xhat / count;
      loops().norm_backward(cols, x, h, row, floats(args.gx) + r * cols);
    }
  });
}

// Joins the partial sums of chunks of rows, stored as [chunk][column].
void join_columns(int64_t chunks, int64_t cols, float* part, float* out) {
  if (out == nullptr) return;
  for (int64_t c = 0; c < cols; ++c)
    out[c] = reduce_loops::join_chunks([](float a, float v) { return a + v; }, part + c, chunks, cols);
}

void parameter_gradients(const NormRowsBackwardArgs& args) {
  const int64_t cols = args.cols, chunks = std::max<int64_t>(1, (args.rows + kRowChunk - 1) / kRowChunk);
  const int64_t blocks = (cols + kColumns - 1) / kColumns;
  const Workspace space(2 * chunks * cols * static_cast<int64_t>(sizeof(float)));
  float *const sums = space.as<float>(), *const products = sums + chunks * cols;
  const int64_t grain =
      std::max<int64_t>(1, kTaskOfRows / (kColumns * std::max<int64_t>(1, std::min(args.rows, kRowChunk))));
  parallel_ranges(chunks * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / blocks * kRowChunk, c = i % blocks * kColumns, at = first * cols + c;
      NormColumns p{std::min(kRowChunk, args.rows - first),
                    cols,
                    static_cast<const char*>(args.gy.data) + at * args.gy.dtype.bits() / 8,
                    static_cast<const char*>(args.x.data) + at * args.x.dtype.bits() / 8,
                    args.gy.dtype == dtypes::bf16,
                    args.x.dtype == dtypes::bf16,
                    args.centered ? floats(args.mean) + first : nullptr,
                    floats(args.inv) + first};
      const int64_t to = i / blocks * cols + c;
      loops().norm_columns(std::min(kColumns, cols - c), p, sums + to, products + to);
    }
  });
  join_columns(chunks, cols, sums, floats(args.gbeta));
  join_columns(chunks, cols, products, floats(args.ggamma));
}

}  // namespace

void cpu::norm_rows_backward(const NormRowsBackwardArgs& args) {
  if (is_fp64(args.x)) return norm_backward_fp64(args);
  // Everything that reads gy comes first, because gx may overwrite it.
  if (args.ggamma.data != nullptr || args.gbeta.data != nullptr) parameter_gradients(args);
  if (args.gx.data != nullptr) input_gradients(args);
}

}  // namespace bitgrad::kernels
