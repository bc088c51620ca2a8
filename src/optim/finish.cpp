#include "optim/finish.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/requantization.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "nn/row_params.h"
#include "optim/map/finish.h"
#include "quant/blocks.h"
#include "quant/values.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kFinishBlock = 65536;  // elements finished at a time, at least one unit of rows

}  // namespace

int64_t rows_at_a_time(const Parameter& p) {
  const int64_t rows = p.shape().rows();
  if (p.spec().grad == dtypes::fp32 && p.has_master() && p.master().dtype() == dtypes::fp32) return rows;
  const int64_t unit = row_unit(p), wanted = kFinishBlock / std::max<int64_t>(p.shape().cols(), 1);
  return std::max(wanted / unit, int64_t{1}) * unit;
}

Tensor number_rows(const Parameter& p, int64_t begin, int64_t end) {
  if (p.has_master() && p.master().dtype() == dtypes::fp32) return as_matrix(p.master()).row_slice(begin, end);
  Tensor x = Tensor::empty({end - begin, p.shape().cols()}, dtypes::fp32, MemoryKind::kWorkspace);
  if (p.has_master()) {
    kernels::from_bf16(x.numel(), as_matrix(p.master()).row_slice(begin, end).as<uint16_t>(), x.as<float>());
    return x;
  }
  dequantize_rows(rows_of(p.value(), begin, end), x);
  return x;
}

Tensor gradient_rows(const Parameter& p, int64_t begin, int64_t end) {
  Tensor g = as_matrix(p.grad()).row_slice(begin, end);
  if (g.dtype() == dtypes::fp32) return g;
  Tensor wide = Tensor::empty(g.shape(), dtypes::fp32, MemoryKind::kWorkspace);
  kernels::from_bf16(g.numel(), g.as<uint16_t>(), wide.as<float>());
  return wide;
}

namespace {

// The quantizer's backward for rows that start at `begin`.
void leaf_rows(const Parameter& p, int64_t begin, const Tensor& g, const Tensor& x, std::span<const Tensor> learned) {
  const QuantSpec& quant = *p.spec().quant;
  const int64_t cols = p.shape().cols(), end = begin + g.rows();
  std::vector<Tensor> sums;
  for (const Tensor& t : learned) {
    const int64_t first = first_scale(quant.granularity, cols, begin),
                  count = scale_count(quant.granularity, end - begin, cols);
    sums.push_back(t.numel() == count ? t : t.column_slice(first, first + count));
  }
  const auto params = params_of_rows(p.value().quant(), cols, begin, end);
  find_quantizer(quant.scheme).leaf_backward(quant, *params, x, g, g, sums);
}

}  // namespace

void finish_rows(const Parameter& p, const OptimizerSpec& spec, double count, int64_t begin, const Tensor& g,
                 const Tensor& x, std::span<const Tensor> learned) {
  kernels::divide(g.numel(), g.as<float>(), static_cast<float>(count));
  // Without a master the values are those of codes, which pass every rule that such a parameter may have.
  if (p.low_bit() && p.has_master()) leaf_rows(p, begin, g, x, learned);
  if (spec.clip_value > 0) kernels::clamp(g.numel(), -spec.clip_value, spec.clip_value, g.as<float>());
}

namespace {

// Arguments of finish_gradient except data and size. For rule clip on rounded codes a separate pass follows; it only
// zeroes elements, so it may come after the value clip.
struct Sweep {
  kernels::FinishGradientArgs args;
  bool then_clip = false;
};

// Arguments for kernels::finish_gradient if it supports this parameter; otherwise nullopt.
std::optional<Sweep> fused_finish(const Parameter& p, const OptimizerSpec& spec, double count, const Tensor& x) {
  constexpr double kMaxCount = 1 << 28;  // the kernel takes 1 to this
  if (count < 1 || count > kMaxCount) return std::nullopt;
  Sweep sweep;
  sweep.args.divisor = static_cast<float>(count);
  sweep.args.clip_value = spec.clip_value;
  if (!p.low_bit() || !p.has_master()) return sweep;
  const QuantSpec& quant = *p.spec().quant;
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  if (quant.alpha || quantizer.own_backward(quant)) return std::nullopt;
  const SteRule rule = ste_rule(quant);
  if (rule != SteRule::kClip) return rule == SteRule::kIdentity ? std::optional(sweep) : std::nullopt;
  if (quantizer.code_range(quant).rule == CodeRule::kSign)
    sweep.args.w = x.as<float>();  // clip at abs w <= 1
  else
    sweep.then_clip = true;
  return sweep;
}

using kernels::kSumChunk;
constexpr int64_t kMostInBlock = 1 << 20;

}  // namespace

// Smallest number of rows that form whole row units and whole chunks of the sum.
int64_t square_unit(const Parameter& p) {
  const int64_t cols = std::max<int64_t>(p.shape().cols(), 1);
  return std::lcm(row_unit(p), kSumChunk / std::gcd(cols, kSumChunk));
}

int64_t square_chunks(const Parameter& p, int64_t begin, int64_t end) {
  const int64_t cols = p.shape().cols();
  return (end * cols + kSumChunk - 1) / kSumChunk - begin * cols / kSumChunk;
}

bool finish_chunk(const Parameter& p, const OptimizerSpec& spec, double count, int64_t begin, const Tensor& g,
                  const Tensor& x, bool check) {
  if (std::optional<Sweep> sweep = fused_finish(p, spec, count, x)) {
    sweep->args.n = g.numel();
    sweep->args.g = g.as<float>();
    const bool finite = kernels::finish_gradient(sweep->args);
    if (sweep->then_clip) leaf_rows(p, begin, g, x, {});
    return finite;
  }
  const bool finite = !check || kernels::all_finite(g.as<float>(), g.numel());
  finish_rows(p, spec, count, begin, g, x, {});
  return finite;
}

bool squares_by_blocks(const Parameter& p) {
  return std::min(square_unit(p), p.shape().rows()) * p.shape().cols() <= kMostInBlock;
}

std::optional<std::vector<float>> finished_squares(const Parameter& p, const OptimizerSpec& spec, double count,
                                                   int64_t first, int64_t last) {
  const int64_t cols = std::max<int64_t>(p.shape().cols(), 1), unit = square_unit(p);
  const int64_t step = std::max(kFinishBlock / cols / unit * unit, unit);
  std::vector<float> parts(static_cast<size_t>(square_chunks(p, first, last)));
  std::atomic<bool> finite{true};
  parallel_ranges(last - first, step, [&](int64_t b, int64_t e) {
    const int64_t begin = first + b, end = first + e;
    const Tensor from = as_matrix(p.grad()).row_slice(begin, end),
                 g = Tensor::empty(from.shape(), dtypes::fp32, MemoryKind::kWorkspace);
    g.copy_from(from);
    const Tensor x = p.has_master() ? number_rows(p, begin, end) : Tensor();
    if (!finish_chunk(p, spec, count, begin, g, x, /*check=*/true)) finite = false;
    if (g.numel() == 0) return;
    kernels::ReduceArgs args;
    args.rule = kernels::ReduceRule::kSumSquares;
    args.axis = kernels::ReduceAxis::kGroups;
    args.rows = 1;
    args.cols = args.ldx = g.numel();
    args.group = kSumChunk;
    args.x = g.as<float>();
    args.out = parts.data() + (begin - first) * cols / kSumChunk;
    kernels::reduce(args);
  });
  return finite ? std::optional(std::move(parts)) : std::nullopt;
}

void round_to_bf16(const RandomStream* draws, int64_t begin, const Tensor& g) {
  constexpr int64_t kPiece = 4096;
  const Workspace space(kPiece * static_cast<int64_t>(sizeof(uint16_t)));
  uint16_t* narrow = space.as<uint16_t>();
  for (int64_t at = 0; at < g.numel(); at += kPiece) {
    const int64_t n = std::min(kPiece, g.numel() - at);
    float* x = g.as<float>() + at;
    if (draws != nullptr)
      kernels::to_bf16_stochastic(n, x, *draws, static_cast<uint64_t>(begin * g.cols() + at), narrow);
    else
      kernels::to_bf16(n, x, narrow);
    kernels::from_bf16(n, narrow, x);
  }
}

Tensor learned_divisors(const Parameter& p) {
  const QuantSpec& quant = *p.spec().quant;
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  const int64_t rows = p.shape().rows(), cols = p.shape().cols(), blocks = scale_count(quant.granularity, rows, cols);
  std::vector<double> divisors;
  for (int64_t j = 0; j < blocks; ++j)
    divisors.push_back(
        static_cast<double>(quantizer.learned_divisor(quant, block_size(quant.granularity, rows, cols, j))));
  return Tensor::from_elements({blocks}, dtypes::fp32, divisors, MemoryKind::kDerived);
}

void finish_learned(const OptimizerSpec& spec, std::span<const Tensor> learned, const Tensor& divisors) {
  for (const Tensor& t : learned) {
    run_map(maps::DivideEach{t.as<float>(), divisors.as<float>()}, t.numel());
    if (spec.clip_value > 0) kernels::clamp(t.numel(), -spec.clip_value, spec.clip_value, t.as<float>());
  }
}

}  // namespace bitgrad::detail
