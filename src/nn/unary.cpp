// Pointwise layers: one for each line of kernels/unary.inc.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class UnaryLayer final : public Module {
 public:
  explicit UnaryLayer(UnaryOp op) : op_(op) {}
  Var forward(const Var& x) override { return unary(op_, x); }
  TensorMeta plan(const TensorMeta& in) override {
    require(in.dtype == dtypes::fp32, unary_name(op_), "needs fp32 input, got ", in.dtype);
    return in;
  }

 private:
  UnaryOp op_;
};

}  // namespace

std::shared_ptr<Module> make_unary_layer(UnaryOp op) { return std::make_shared<UnaryLayer>(op); }

}  // namespace bitgrad
