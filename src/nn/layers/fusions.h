// Layers that a Sequential runs as one op: the table of patterns is in fusions.cpp. Bits, gradients, flags and errors
// are those of the layers one by one. They do run one by one
//   - before initialize, where a hook observes values (StepState::on_forward), in evaluation on a tape (Sequential),
//   and
//     where the pattern ends behind the layers that are asked for (Sequential::forward_first);
//   - norm and signs: if the quantizer is off, observes, learns, has an alpha or other codes than the sign, or if
//   values
//     are not fp32. In training also on devices, with a straight-through rule other than clip and identity, with a norm
//     of the whole tensor or of frozen statistics, or if a gradient is not fp32. A pool of them: in evaluation. A
//     product of them: if it has an adapter;
//   - residual and hardtanh: on devices, or if values are not fp32.
// After an Error they run once more, one by one, so that it names the layer; statistics of a norm may then have moved
// twice. The window is lost either way.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {

// The patterns that match a list of layers, found once, when the list is planned. Refers to the layers.
class Fusions {
 public:
  // `run` maps the input of the first module to the output of the last. It returns an undefined Var, without side
  // effects, if they must run one by one now.
  struct Fused {
    size_t modules = 0;
    std::function<Var(const Var&)> run;
  };
  explicit Fusions(std::span<const std::shared_ptr<Module>> modules);
  // Those that begin at module i, the longest first.
  const std::vector<Fused>& at(size_t i) const { return at_[i]; }

 private:
  std::vector<std::vector<Fused>> at_;
};

// The residual layer; a hardtanh that follows it runs in the same pass.
class Residual final : public Module {
 public:
  // shortcut: nullptr for the identity. scale: of the body's output.
  Residual(std::shared_ptr<Sequential> body, std::shared_ptr<Sequential> shortcut, float scale);

  Var forward(const Var& x) override;
  Form plan(const Form& in, PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override;
  std::vector<std::string> operand_names() const override;

  // Whether `hardtanh` may be called.
  bool returns_fp32(const Var& x) const;
  // hardtanh(forward(x)), with the same bits; a norm at the end of the body is part of the same pass if possible.
  Var hardtanh(const Var& x);

 private:
  std::vector<Var> branches(const Var& x);

  std::shared_ptr<Sequential> body_, shortcut_;
  float scale_;
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

}  // namespace bitgrad
