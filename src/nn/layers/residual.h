// The residual layer; a hardtanh that follows it runs in the same pass (nn/layers/fusions.cpp).
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
  // hardtanh(forward(x)), with the same bits; a norm at the end of the body is part of the same pass if possible.
  Var hardtanh(const Var& x);

 private:
  std::vector<Var> branches(const Var& x);

  std::shared_ptr<Sequential> body_, shortcut_;
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

}  // namespace bitgrad
