// Codes of parameters that are written by the device kernel that updates them (kernels/update_rows.h).
#include "bitgrad/base/step_scalars.h"
#include "kernels/update_rows.h"
#include "nn/requantization.h"
#include "nn/row_params.h"

namespace bitgrad {

using detail::as_matrix;

ErrorContext::Handler detail::names_parameter(const Parameter& p, int64_t begin, int64_t step) {
  const std::string text =
      p.has_master()
          ? concat("[requantize] the master of '", p.path(), "' (", p.master(), ") holds NaN or Inf at optimizer step ",
                   step)
          : concat("[update] the new values of '", p.path(), "' (", p.value(), ", no master), rows from ", begin,
                   " on, hold NaN or Inf at optimizer step ", step, ". A smaller learning rate may help.");
  return [text](const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (error != nullptr && error->code() == ErrorCode::kNonFinite) throw Error(text, ErrorCode::kNonFinite);
  };
}

std::string Parameter::not_swept() const {
  const QuantSpec& quant = *spec_.quant;
  if (!kernels::sweeps_codes(quantizer_->code_range(quant).rule))
    return concat("codes of ", quant.dtype, " by scheme ", quant.scheme, " need a separate kernel");
  if (dequantized_.defined()) return "its dequantized copy in fp32 is written with the codes";
  if (quantizer_->constant_params(quant)) return "";
  if (!scales_given() && !quantizer_->row_fit(quant))
    return concat("scales of scheme ", quant.scheme, " are not computed row by row");
  const Granularity& g = quant.granularity;
  if (g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0)) return "";
  return scales_given() && g.kind == Granularity::kTensor ? ""
                                                          : concat("scales of granularity ", g, " are not one per row");
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

kernels::RowCodes Parameter::sweep_codes() {
  ensure(next_ != nullptr && not_swept().empty(), "sweep_codes", "parameter '", path_, "'");
  const ErrorContext scope(detail::names_parameter(*this, 0, step_now(next_->draws)));
  const QuantSpec& spec = next_->spec;
  const CodeRange range = quantizer_->code_range(spec);
  kernels::RowCodes to;
  const bool constant = quantizer_->constant_params(spec);
  if (!next_->given && !constant) {
    to.fit = quantizer_->row_fit(spec);
    *next_->params = row_params(spec, *to.fit, shape_->rows());
    to.scale = next_->params->scale->as<float>();
    if (next_->params->zero) to.zero = next_->params->zero->as<int32_t>();
  } else {
    if (!next_->given)
      *next_->params = quantizer_->fit(spec, Tensor::empty({0, shape_->cols()}, dtypes::fp32, MemoryKind::kWorkspace));
    const std::shared_ptr<const QuantParams> given = next_->given ? next_->given : next_->params;
    next_->scales.emplace(range, as_matrix(value_.without_quant()).with_quant(given));
    to.codes.scale = next_->scales->map();
  }
  to.codes.dtype = spec.dtype;
  to.codes.codes = value_.data();
  to.codes.stride = value_.stride();
  to.codes.rule = range.rule;
  to.codes.lo = range.lo;
  to.codes.hi = range.hi;
  if (spec.rounding != Rounding::kNearest) to.codes.sr = &next_->draws;
  const auto layout = [&](Layout wanted) -> void* {
    const Tensor derived = value_.in_layout(wanted);
    if (!derived.defined()) return nullptr;
    next_->written.push_back(wanted);
    return derived.data();
  };
  to.transposed = layout(layouts::transposed);
  if (const Tensor sums = row_sums_place(value_, true); sums.defined()) {
    to.codes.row_sums = sums.as<int32_t>();
    next_->summed = true;
  }
  to.frag64 = layout(layouts::frag64);
  const FlagWord flag;
  to.codes.flags = flag.word();
  flag.check([p = *shape_, dtype = spec.dtype] {
    fail_with(ErrorCode::kNonFinite, "quantize", "x ", p, " fp32 holds NaN or Inf: it has no codes of ", dtype, '.');
  });
  return to;
}

}  // namespace bitgrad
