// Codes of parameters that are written by the device kernel that updates them (kernels/update_rows.h).
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/requantization.h"
#include "kernels/flag.h"
#include "kernels/update_rows.h"
#include "nn/row_params.h"
#include "quant/values.h"

namespace bitgrad {

using detail::as_matrix;

std::string Requantization::not_swept(const Parameter& p) {
  const QuantSpec& quant = *p.spec().quant;
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  const bool given = detail::scales_given(p);
  if (!kernels::sweeps_codes(quantizer.code_range(quant).rule))
    return concat("codes of ", quant.dtype, " by scheme ", quant.scheme, " need a separate kernel");
  if (p.dequantized_.defined()) return "its dequantized copy in fp32 is written with the codes";
  if (quantizer.constant_params(quant)) return "";
  if (!given && !quantizer.row_fit(quant))
    return concat("scales of scheme ", quant.scheme, " are not computed row by row");
  const Granularity& g = quant.granularity;
  if (g.per_row()) return "";
  return given && g.kind == Granularity::kTensor ? "" : concat("scales of granularity ", g, " are not one per row");
}

namespace {

// Allocates the params that a fit per row writes.
QuantParams row_params(const QuantSpec& spec, const kernels::RowFit& fit, int64_t rows) {
  const auto numbers = [&](DType dtype) {
    return std::make_shared<const Tensor>(Tensor::empty({rows}, dtype, MemoryKind::kQuantState));
  };
  QuantParams params;
  params.scheme = spec.scheme;
  params.granularity = spec.granularity;
  params.scale = numbers(dtypes::fp32);
  if (fit.rule == kernels::RowFit::kAffine) params.zero = numbers(dtypes::int32);
  return params;
}

}  // namespace

kernels::RowCodes Requantization::sweep() {
  ensure(!finished_ && not_swept(p_).empty(), "sweep", "parameter '", p_.path(), "'");
  const ErrorContext scope(names_parameter(0));
  const Tensor& value = p_.value();
  const Shape& shape = p_.shape();
  const CodeRange range = quantizer_.code_range(spec_);
  kernels::RowCodes to;
  if (!given_ && !quantizer_.constant_params(spec_)) {
    to.fit = quantizer_.row_fit(spec_);
    *params_ = row_params(spec_, *to.fit, shape.rows());
    to.scale = params_->scale->as<float>();
    if (params_->zero) to.zero = params_->zero->as<int32_t>();
  } else {
    if (!given_)
      *params_ = quantizer_.fit(spec_, Tensor::empty({0, shape.cols()}, dtypes::fp32, MemoryKind::kWorkspace));
    const std::shared_ptr<const QuantParams> given = given_ ? given_ : params_;
    scales_ = std::make_shared<detail::KernelScales>(range, as_matrix(value.without_quant()).with_quant(given));
    to.codes.scale = scales_->map();
  }
  to.codes.dtype = spec_.dtype;
  to.codes.codes = value.data();
  to.codes.stride = value.stride();
  to.codes.rule = range.rule;
  to.codes.lo = range.lo;
  to.codes.hi = range.hi;
  if (spec_.rounding != Rounding::kNearest) to.codes.sr = &draws_;
  const auto layout = [&](Layout wanted) -> void* {
    const Tensor derived = value.in_layout(wanted);
    if (!derived.defined()) return nullptr;
    written_.push_back(wanted);
    return derived.data();
  };
  to.transposed = layout(layouts::transposed);
  if (const Tensor sums = row_sums_place(p_.memory_.value_, true); sums.defined()) {
    to.codes.row_sums = sums.as<int32_t>();
    summed_ = true;
  }
  to.frag64 = layout(layouts::frag64);
  const FlagWord flag;
  to.codes.flags = flag.word();
  flag.check([shape, dtype = spec_.dtype] {
    fail_with(ErrorCode::kNonFinite, "quantize", "x ", shape, " fp32 holds NaN or Inf: it has no codes of ", dtype,
              '.');
  });
  rows_ = shape.rows();
  return to;
}

}  // namespace bitgrad
