// Pointwise layers: one for each line of kernels/unary.inc. relu takes int32 sums with a scale too.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class UnaryLayer final : public Module {
 public:
  explicit UnaryLayer(UnaryOp op) : op_(op) {}
  Var forward(const Var& x) override {
    return op_ == UnaryOp::relu && x.dtype() == dtypes::int32 ? integer_relu(x) : unary(op_, x);
  }
  TensorMeta plan(const TensorMeta& in) override {
    const bool integers = in.dtype == dtypes::int32;
    if (integers && op_ == UnaryOp::relu) return in;
    require(in.dtype == dtypes::fp32, unary_name(op_), "needs fp32 input, got ", in.dtype,
            integers ? ". Put dequantize before it" : ". Put it before the quantizer, or dequantize before it");
    return in;
  }
  std::string_view kind() const override { return unary_name(op_); }

 private:
  UnaryOp op_;
};

}  // namespace

std::shared_ptr<Module> make_unary_layer(UnaryOp op) { return std::make_shared<UnaryLayer>(op); }

}  // namespace bitgrad
