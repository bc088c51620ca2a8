// The residual layer; a hardtanh that follows it runs in the same pass (nn/fusions.cpp).
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {

class Norm;

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
  // The last module of the body.
  Module& last() { return (*body_)[body_->size() - 1]; }
  // hardtanh(forward(x)), with the same bits. norm: last() if it is a norm, which is fused too if possible; else
  // nullptr.
  Var hardtanh(const Var& x, Norm* norm);

 private:
  std::vector<Var> branches(const Var& x);

  std::shared_ptr<Sequential> body_, shortcut_;
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

}  // namespace bitgrad
