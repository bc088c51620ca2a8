// The residual layer; a hardtanh that follows it runs in the same pass (forward_fused of nn/layers/unary.cpp).
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {

class Residual final : public Module {
 public:
  // shortcut: nullptr for the identity.
  Residual(std::shared_ptr<Sequential> body, std::shared_ptr<Sequential> shortcut);

  Var forward(const Var& x) override;
  Form plan(const Form& in, PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override;

  // Whether `hardtanh` may be called.
  bool returns_fp32(const Var& x) const;
  // hardtanh(forward(x)), with the same bits.
  Var hardtanh(const Var& x);

 private:
  std::vector<Var> branches(const Var& x);

  std::shared_ptr<Sequential> body_, shortcut_;
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

}  // namespace bitgrad
