// Codes, or int32 sums with a scale, become fp32 numbers; fp32 passes through, so that a float twin of an integer
// network has the same list of layers.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class DequantizeLayer final : public Module {
 public:
  Var forward(const Var& x) override { return x.dtype() == dtypes::fp32 ? x : dequantize(x); }

  Form plan(const Form& in, PlanRequests&) override {
    require(in.dtype == dtypes::fp32 || in.dtype == dtypes::int32 || in.dtype.is_code(), "dequantize",
            "needs codes, int32 or fp32, got ", in.dtype);
    Form out = in;
    out.dtype = dtypes::fp32;
    out.scales.reset();
    return out;
  }
  std::string_view kind() const override { return "dequantize"; }
};

}  // namespace

LayerKind dequantize_kind() {
  LayerKind kind;
  kind.name = "dequantize";
  kind.doc = "codes or integers become their fp32 values";
  kind.output = LayerKind::Output::kKeeps;
  kind.make = [](const LayerSpec&) { return std::make_shared<DequantizeLayer>(); };
  return kind;
}

}  // namespace bitgrad
