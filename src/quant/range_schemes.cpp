// The schemes whose scales follow from the range of a block.
#include <algorithm>

#include "quant/checks.h"
#include "quant/map/scales.h"
#include "quant/range.h"

namespace bitgrad::detail {
namespace {

// absmax (narrow): s = max(a / qmax, eps), a = max abs x; code = clamp(rint(x * (1/s)), -qmax, qmax).
class Absmax final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "absmax"; }
  void check(const QuantSpec& spec, bool weight) const override {
    RangeQuantizer::check(spec, weight);
    require(spec.dtype.info().qmax > 0, name(), "dtype ", spec.dtype, ": its largest code is ", spec.dtype.info().qmax,
            ", expected a positive one.");
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    const CodeLimits limits = code_limits(spec);
    return {quotient_rule(spec), std::max(limits.lo, -limits.hi), limits.hi};
  }

 private:
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kAbsmax; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::AbsmaxScales{blocks}, count);
  }
};

// symmetric: s = max(max(-lo, hi) / ((qmax - qmin) / 2), eps), lo = min(0, min x), hi = max(0, max x);
// code = clamp(rint(x * (1/s))). symmetric_no_clip: s = max(max(lo / qmin, hi / qmax), eps), so that no value is
// clipped. Both equal torchao 0.18, choose_qparams_affine with MappingType SYMMETRIC and SYMMETRIC_NO_CLIPPING_ERR, in
// fp32.
class Symmetric final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "symmetric"; }

 private:
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kSymmetric; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::SymmetricScales{blocks}, count);
  }
};

class SymmetricNoClip final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "symmetric_no_clip"; }
  void check(const QuantSpec& spec, bool weight) const override {
    RangeQuantizer::check(spec, weight);
    const DTypeInfo& info = spec.dtype.info();
    require(info.qmin < 0 && info.qmax > 0, name(), "dtype ", spec.dtype, ": got codes ", info.qmin, " to ", info.qmax,
            ", expected codes of both signs. Use scheme symmetric or affine.");
  }

 private:
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kSymmetricNoClip; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::SymmetricNoClipScales{blocks}, count);
  }
};

// affine: s = max((hi - lo) / (qmax - qmin), eps), lo = min(0, min x), hi = max(0, max x);
// z = clamp(qmin - rint(lo / s), qmin, qmax); code = clamp(rint(x * (1/s)) + z). Equals torchao 0.18,
// choose_qparams_affine with MappingType ASYMMETRIC, in fp32. A tensor without elements has s = eps, z = 0.
class Affine final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "affine"; }

 private:
  Shift shift() const override { return Shift::kZero; }
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kAffine; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::AffineScales{blocks}, count);
  }
};

// minmax_offset: l = min x, h = max x (not extended to 0); s = max(h - l, eps) / (qmax - qmin), eps 1e-6;
// m = l - s * qmin; code = clamp(rint((x - l) / s), 0, qmax - qmin) + qmin. This is the 4-bit format of torchao's
// tinygemm (Int4 weight only), with codes shifted by qmin. Codes always follow from s and m alone, with
// l = m + s * qmin, so that a fresh fit and scales read from a file give the same codes. A tensor without elements has
// s = eps, m = 0.
class MinmaxOffset final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "minmax_offset"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true, .div = true});
    require_integer(name(), spec.dtype);
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {CodeRule::kOffset, spec.dtype.info().qmin, spec.dtype.info().qmax, true};
  }

 private:
  float default_eps() const override { return 1e-6f; }
  Shift shift() const override { return Shift::kOffset; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::MinmaxOffsetScales{blocks}, count);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Absmax() { return std::make_unique<Absmax>(); }
std::unique_ptr<Quantizer> make_Symmetric() { return std::make_unique<Symmetric>(); }
std::unique_ptr<Quantizer> make_SymmetricNoClip() { return std::make_unique<SymmetricNoClip>(); }
std::unique_ptr<Quantizer> make_Affine() { return std::make_unique<Affine>(); }
std::unique_ptr<Quantizer> make_MinmaxOffset() { return std::make_unique<MinmaxOffset>(); }

}  // namespace bitgrad::detail
