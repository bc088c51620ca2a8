// fixed(s, m): given constants for the whole tensor; code = clamp(rint((x - m) / s)); codebooks: the level nearest to
// x * (1/s). On dtype ternary with s = 1 it is the 2-bit quantizer {-1, 0, 1} of FINN (Umuroglu et al. 2017, arXiv
// 1612.07119). s = 1 and m = 0 are not stored: kernels then skip the multiplication.
#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Fixed final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "fixed"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true, .div = spec.dtype.kind() != DTypeKind::kCodebook});
    require(spec.dtype.kind() != DTypeKind::kSign, name(), "dtype ", spec.dtype,
            ": got kind sign, expected int, uint or codebook. Use scheme binary.");
    require(std::isfinite(spec.scale) && spec.scale > 0.0f, name(), "scale: got ", spec.scale,
            ", expected a positive number.");
    require(!spec.pow2 || std::isfinite(maps::q::ceil_pow2(spec.scale)), name(), "scale: got ", spec.scale,
            ", expected at most 2^127 with pow2.");
    require(std::isfinite(spec.offset), name(), "offset: got ", spec.offset, ", expected a finite number.");
    require(std::isfinite(maps::q::rounded_scale(scale_rounding(spec), spec.scale)) &&
                std::isfinite(maps::q::rounded_offset(scale_rounding(spec), spec.offset)),
            name(), "scale and offset with scale_dtype fp16: got ", spec.scale, " and ", spec.offset,
            ", expected numbers up to 65504.");
    require(spec.offset == 0.0f || spec.dtype.kind() != DTypeKind::kCodebook, name(), "offset of a codebook: got ",
            spec.offset, ", expected 0.");
    require(spec.scale >= kSmallestNormal || spec.dtype.kind() != DTypeKind::kCodebook, name(),
            "scale of a codebook: got ", spec.scale, ", expected at least 2^-126.");
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    const DTypeInfo& info = spec.dtype.info();
    if (info.kind == DTypeKind::kCodebook) return {CodeRule::kCodebook, info.qmin, info.qmax};
    return {spec.offset == 0.0f ? CodeRule::kDivide : CodeRule::kOffset, info.qmin, info.qmax};
  }
  bool constant_params(const QuantSpec&) const override { return true; }
  QuantParams fit(const QuantSpec& spec, const Tensor&) const override {
    const float s = maps::q::rounded_scale(scale_rounding(spec), spec.scale);
    const float m = maps::q::rounded_offset(scale_rounding(spec), spec.offset);
    QuantParams params;
    params.scheme = name();
    if (s != 1.0f) params.scale = shared(filled(1, s));
    if (spec.offset != 0.0f) params.offset = shared(filled(1, m));
    return params;
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Fixed() { return std::make_unique<Fixed>(); }

}  // namespace bitgrad::detail
