// Family quantize: sequences that other devices run as a single kernel.
#include "kernels/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/kernel_table.h"
#include "kernels/pack.h"

namespace bitgrad::kernels {
namespace {

constexpr int64_t kBlockElements = 1 << 16;
constexpr int64_t kSignElements = 1 << 14;  // elements of y in cache at a time

// Counts the set bits in each row of whole words.
void count_ones(const void* codes, int64_t stride, int64_t rows, int64_t cols, int32_t* ones) {
  const int64_t words = (cols + 63) / 64;
  parallel_ranges(rows, std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, words)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t r = begin; r < end; ++r) {
                      int32_t total = 0;
                      for (int64_t w = 0; w < words; ++w) {
                        uint64_t word;
                        std::memcpy(&word, static_cast<const char*>(codes) + r * stride + 8 * w, 8);
                        total += std::popcount(word);
                      }
                      ones[r] = total;
                    }
                  });
}

void transpose(DType dtype, int64_t rows, int64_t cols, const void* codes, int64_t stride, void* transposed) {
  PackArgs args;
  args.dtype = dtype;
  args.rows = rows;
  args.cols = cols;
  args.canonical = codes;
  args.stride = stride;
  args.to = layouts::transposed;
  args.out = transposed;
  pack(args);
}

// Arguments that quantize [rows, cols] values to their signs.
QuantizeArgs sign_args(int64_t rows, int64_t cols, const FloatsIn& x, int64_t ldx, void* codes, int64_t stride,
                       uint32_t* flags) {
  QuantizeArgs args;
  args.rows = rows;
  args.cols = cols;
  args.x = x;
  args.ldx = ldx;
  args.dtype = dtypes::bint1;
  args.codes = codes;
  args.stride = stride;
  args.rule = CodeRule::kSign;
  args.lo = -1;
  args.hi = 1;
  args.flags = flags;
  return args;
}

void mean_abs(const BinarizeArgs& args) {
  ReduceArgs sums;
  sums.rule = ReduceRule::kSumAbs;
  sums.axis = ReduceAxis::kRows;
  sums.rows = args.rows;
  sums.cols = args.cols;
  sums.x = args.x;
  sums.ldx = args.ldx;
  sums.out = args.alpha;
  reduce(sums);
  for (int64_t r = 0; r < args.rows; ++r) {
    args.alpha[r] = std::max(args.alpha[r] / static_cast<float>(args.cols), args.eps);
    if (args.alpha_flags != nullptr && !std::isfinite(args.alpha[r])) *args.alpha_flags |= kFlagNonFinite;
  }
}

}  // namespace

void cpu::quantize_transposed(const QuantizeArgs& args, void* transposed) {
  quantize(args);
  transpose(args.dtype, args.rows, args.cols, args.codes, args.stride, transposed);
}

void cpu::binarize(const BinarizeArgs& args) {
  quantize(sign_args(args.rows, args.cols, args.x, args.ldx, args.codes, args.stride, args.flags));
  if (args.alpha != nullptr && args.cols > 0) mean_abs(args);
  if (args.row_ones != nullptr) count_ones(args.codes, args.stride, args.rows, args.cols, args.row_ones);
  if (args.transposed == nullptr && args.column_ones == nullptr) return;
  const Workspace space(
      args.transposed == nullptr ? layouts::transposed.info().bytes(dtypes::bint1, args.rows, args.cols) : 0);
  void* const transposed = args.transposed == nullptr ? space.as<void>() : args.transposed;
  transpose(dtypes::bint1, args.rows, args.cols, args.codes, args.stride, transposed);
  if (args.column_ones != nullptr)
    count_ones(transposed, row_bytes_memory(dtypes::bint1, args.rows), args.cols, args.rows, args.column_ones);
}

void cpu::normalize_sign(const NormalizeSignArgs& args) {
  const int64_t cols = args.norm.cols;
  if (args.row_ones != nullptr) std::fill_n(args.row_ones, args.norm.rows, 0);
  if (cols == 0) return;
  parallel_ranges(args.norm.rows, std::max<int64_t>(1, kSignElements / cols), [&](int64_t begin, int64_t end) {
    const Workspace space((end - begin) * cols * static_cast<int64_t>(sizeof(float)));
    uint32_t seen = 0;
    NormalizeArgs part = args.norm;
    part.rows = end - begin;
    part.x = part.x.from(begin * cols);
    part.y = space.as<float>();
    cpu::normalize(part);
    quantize(sign_args(part.rows, cols, space.as<float>(), cols, static_cast<char*>(args.codes) + begin * args.stride,
                       args.stride, &seen));
    if (seen != 0 && args.flags != nullptr)
      std::atomic_ref<uint32_t>(*args.flags).fetch_or(seen, std::memory_order_relaxed);
  });
  if (args.row_ones != nullptr) count_ones(args.codes, args.stride, args.norm.rows, cols, args.row_ones);
}

}  // namespace bitgrad::kernels
