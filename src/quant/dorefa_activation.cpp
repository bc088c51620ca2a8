// dorefa_activation, for kind uint of b bits: s = 1 / (2^b - 1) for the whole tensor;
// code = clamp(rint((2^b - 1) * x), 0, 2^b - 1), which equals rint((2^b - 1) * clamp(x, 0, 1)). DoReFa-Net: Zhou et al.
// 2016, arXiv 1606.06160, eq. 11. Rule clip is that of docs/numerics.md section 3: it tests the code before the clamp,
// so values outside [0, 1] that round to 0 or 2^b - 1 pass too.
#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class DorefaActivation final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "dorefa_activation"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_common(*this, spec, {.scale_dtype = false});
    require_uint(name(), spec.dtype);
    require(!weight, name(), "dtype of weights: got ", spec.dtype,
            ", where weights below 0 would become 0. Use scheme dorefa_weight.");
  }
  CodeRange code_range(const QuantSpec& spec) const override { return {CodeRule::kTimes, 0, spec.dtype.info().qmax}; }
  bool constant_params(const QuantSpec&) const override { return true; }
  QuantParams fit(const QuantSpec& spec, const Tensor&) const override {
    QuantParams params;
    params.scheme = name();
    params.scale = shared(filled(1, 1.0f / static_cast<float>(spec.dtype.info().qmax)));
    return params;
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_DorefaActivation() { return std::make_unique<DorefaActivation>(); }

}  // namespace bitgrad::detail
