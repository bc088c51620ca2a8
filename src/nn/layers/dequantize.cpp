// Codes, or int32 sums with a scale, become fp32 numbers; fp32 passes through, so that a float twin of an integer
// network has the same list of layers.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class DequantizeLayer final : public Module {
 public:
  Var forward(const Var& x) override { return x.dtype() == dtypes::fp32 ? x : dequantize(x); }

  TensorMeta plan(const TensorMeta& in) override {
    require(in.dtype == dtypes::fp32 || in.dtype == dtypes::int32 || in.dtype.is_code(), "dequantize",
            "needs codes, int32 or fp32, got ", in.dtype);
    TensorMeta out;
    out.rows = in.rows;
    out.features = in.features;
    out.training = in.training;
    out.grad = in.grad;
    return out;
  }
  std::string_view kind() const override { return "dequantize"; }
};

}  // namespace

std::shared_ptr<Module> make_dequantize_layer(const LayerSpec&, int64_t) { return std::make_shared<DequantizeLayer>(); }

}  // namespace bitgrad
