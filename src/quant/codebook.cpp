// codebook: s = max(a / max abs level, eps) per block, a = max abs x; code = the level nearest to x * (1/s), ties to
// the lower level. With NF4 and groups of 64 it is the 4-bit format of QLoRA (Dettmers et al. 2023, arXiv 2305.14314).
#include <algorithm>
#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

float largest_level(const DTypeInfo& info) {
  float largest = 0.0f;
  for (const float level : info.levels) largest = std::max(largest, std::fabs(level));
  return largest;
}

class Codebook final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "codebook"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true});
    const DTypeInfo& info = spec.dtype.info();
    require(info.kind == DTypeKind::kCodebook, name(), "dtype ", spec.dtype, ": got kind ", kind_name(info.kind),
            ", expected kind codebook, such as nf4 or fp4_e2m1.");
    require(largest_level(info) > 0.0f, name(), "dtype ", spec.dtype, ": all its levels are 0.");
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {CodeRule::kCodebook, spec.dtype.info().qmin, spec.dtype.info().qmax};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal), largest = largest_level(spec.dtype.info());
    const Tensor a = blocks.statistic(kernels::ReduceRule::kAbsMax);
    return scale_params(spec, blocks, eps,
                        maps::BlockScales{a.as<float>(), blocks.sizes(), false, 1.0f, largest, eps, {}});
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Codebook() { return std::make_unique<Codebook>(); }

}  // namespace bitgrad::detail
