// Requantization by ranks that make the codes of some rows each. docs/numerics.md section 6.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/requantization.h"
#include "kernels/reduce.h"
#include "nn/learned_parts.h"
#include "nn/row_params.h"
#include "quant/blocks.h"
#include "quant/values.h"

namespace bitgrad {

using detail::as_matrix;
using detail::Blocks;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

int64_t Requantization::refit_learned(Parameter& p, int64_t step) {
  if (!p.learned_) return 0;
  p.learned_->refit(step);
  return p.learned_->told();
}

void Requantization::tell_refit(const Parameter& p, int64_t refitted) {
  if (p.learned_) p.learned_->tell(refitted);
}

bool Requantization::scales_join(const Parameter& p) {
  const QuantSpec& quant = *p.spec().quant;
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  if (quant.granularity.kind != Granularity::kTensor || scales_are_row_local(p)) return false;
  const std::optional<kernels::RowFit> fit = quantizer.row_fit(quant);
  return quantizer.from_range() || (fit && fit->rule == kernels::RowFit::kMeanAbs);
}

std::vector<float> Requantization::scale_terms(const Tensor& x) const {
  const bool range = quantizer_.from_range();
  if (x.numel() == 0) return range ? std::vector<float>{kInf, -kInf} : std::vector<float>();
  try {
    if (range) {
      const Blocks::Ranges ends = Blocks(spec_.scheme, spec_.granularity, x).ranges();
      return {ends.low.as<float>()[0], ends.high.as<float>()[0]};
    }
    const Tensor sums = Blocks(spec_.scheme, Granularity::groups(kernels::kSumChunk), x.reshape({1, x.numel()}))
                            .statistic(kernels::ReduceRule::kSumAbs);
    return {sums.as<float>(), sums.as<float>() + sums.numel()};
  } catch (const Error& e) {
    names_parameter(0)(e);
    throw;
  }
}

int64_t Requantization::scale_unit(const Parameter& p) {
  const QuantSpec& quant = *p.spec().quant;
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  // An offset (minmax_offset) shows whether the first of equal ends is +0 or -0, which chunks decide.
  const bool any = quantizer.from_range() && quantizer.row_fit(quant);
  return any ? 1 : kernels::kSumChunk / std::gcd(std::max<int64_t>(p.shape().cols(), 1), kernels::kSumChunk);
}

int64_t Requantization::scale_term_count(const Parameter& p, int64_t begin, int64_t end) {
  if (find_quantizer(p.spec().quant->scheme).from_range()) return 2;
  return ((end - begin) * p.shape().cols() + kernels::kSumChunk - 1) / kernels::kSumChunk;
}

void Requantization::join_scales(std::vector<float> terms) {
  const auto number = [](float x) {
    Tensor t = Tensor::empty({1}, dtypes::fp32, MemoryKind::kQuantState);
    t.as<float>()[0] = x;
    return t;
  };
  if (quantizer_.from_range()) {
    float low = kInf, high = -kInf;
    for (size_t i = 0; i < terms.size(); i += 2) {
      low = std::min(low, terms[i]);
      high = std::max(high, terms[i + 1]);
    }
    try {
      given_ = std::make_shared<const QuantParams>(quantizer_.fit_range(spec_, number(low), number(high)));
    } catch (const Error& e) {
      names_parameter(0)(e);
      throw;
    }
    return;
  }
  const kernels::RowFit fit = *quantizer_.row_fit(spec_);
  const Tensor sum = number(kernels::join_chunks(std::move(terms))), scale = number(0);
  const maps::q::BlockSizes size{maps::q::BlockSizes::kAll, p_.shape().rows(), p_.shape().cols(), 0};
  run_map(
      maps::BlockScales{sum.as<float>(), size, true, 1.0f, 1.0f, fit.eps, {scale.as<float>(), nullptr, fit.rounding}},
      1);
  detail::require_finite(spec_.scheme, concat("the master of '", p_.path(), "'"), "scale", 0, scale.as<float>()[0]);
  given_ = std::make_shared<const QuantParams>(detail::params_with(spec_.scheme, spec_, scale));
}

// Calls `use` with the bytes of rows [begin, end): of their codes, and of each part of their scales, unless those are
// given.
template <typename Use>
void Requantization::each_part(int64_t begin, int64_t end, const Use& use) const {
  const Tensor& value = p_.value();
  const int64_t row = row_bytes_file(value.dtype(), value.cols());  // without the padding of a row in memory
  for (int64_t r = begin; r < end; ++r) use(static_cast<std::byte*>(value.data()) + r * value.stride(), row);
  if (given_) return;
  const int64_t cols = p_.shape().cols(), first = detail::first_scale(params_->granularity, cols, begin);
  const int64_t count = begin == end ? 0 : scale_count(params_->granularity, end - begin, cols);
  for (const auto& part : {params_->scale, params_->zero, params_->offset, params_->statistic})
    if (part) {
      const int64_t each = part->bytes() / part->numel();
      use(static_cast<std::byte*>(part->data()) + first * each, count * each);
    }
}

void Requantization::share_rows() {
  const QuantParams& now = *p_.value().quant();
  const auto place = [](const std::shared_ptr<const Tensor>& part) {
    return part ? std::make_shared<const Tensor>(Tensor::empty(part->shape(), part->dtype(), MemoryKind::kQuantState))
                : nullptr;
  };
  if (given_) return;
  *params_ = now;
  params_->scale = place(now.scale);
  params_->zero = place(now.zero);
  params_->offset = place(now.offset);
  params_->statistic = place(now.statistic);
}

int64_t Requantization::row_bytes(int64_t begin, int64_t end) const {
  int64_t bytes = 0;
  each_part(begin, end, [&](const std::byte*, int64_t n) { bytes += n; });
  return bytes;
}

void Requantization::give_rows(int64_t begin, int64_t end, std::byte* to) const {
  each_part(begin, end, [&](const std::byte* part, int64_t n) { to = std::copy_n(part, n, to); });
}

void Requantization::take_rows(int64_t begin, int64_t end, const std::byte* from) {
  if (begin == end) return;
  each_part(begin, end, [&](std::byte* part, int64_t n) {
    std::copy_n(from, n, part);
    from += n;
  });
  if (p_.dequantized_.defined()) {
    const Tensor codes = as_matrix(p_.value().without_quant()).row_slice(begin, end);
    detail::dequantize_rows(
        codes.with_quant(detail::params_of_rows(given_ ? given_ : params_, p_.shape().cols(), begin, end)),
        as_matrix(p_.dequantized_).row_slice(begin, end));
  }
  rows_ += end - begin;
  pack_rows(begin, end);
}

}  // namespace bitgrad
