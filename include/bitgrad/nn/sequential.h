// Sequential: modules that run one after another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

// Children are named 0, 1, 2, ... unless given a name. Errors name the child (LayerError).
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(const std::vector<std::shared_ptr<Module>>& modules);
  void append(std::shared_ptr<Module> module, std::string name = {});
  Var forward(const Var& x) override;
  // In training, keeps only its input and runs forward again in backward (autograd/recompute.h).
  void set_recompute(bool on) { recompute_ = on; }
  // Runs the first `count` modules.
  Var forward_first(size_t count, const Var& x);
  using Module::plan;
  Form plan(const Form& in, PlanRequests& requests) override;
  PlanRequests serve(const PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override { return "sequence"; }
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) { return *modules_.at(i); }
  // Name of child i.
  const std::string& name(size_t i) const { return names_.at(i); }

 private:
  PlanRequests serve_before(size_t i, PlanRequests requests);
  Var forward_together(size_t i, size_t count, const Var& x);
  std::vector<std::shared_ptr<Module>> modules_;
  std::vector<std::string> names_;
  bool recompute_ = false;
};

}  // namespace bitgrad
