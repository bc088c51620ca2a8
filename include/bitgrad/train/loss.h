// The loss of a learner: sum over samples (docs/numerics.md section 6).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/autograd/var.h"

namespace bitgrad {

class LossFunction {
 public:
  using OfHost = Var (*)(const Var& logits, std::span<const int32_t> labels);
  using OfTensor = Var (*)(const Var& logits, const Tensor& labels);

  // A loss of losses.inc also knows its form over labels in a tensor.
  LossFunction(OfHost of_host);
  // of_tensor: the same with labels int32 [n] that lie on the current device.
  LossFunction(OfHost of_host, OfTensor of_tensor) : of_host_(of_host), of_tensor_(of_tensor) {}
  // Any other callable of the form OfHost.
  template <typename F>
  requires(!std::same_as<F, OfHost> && !std::same_as<F, LossFunction> &&
           std::is_invocable_r_v<Var, F, const Var&, std::span<const int32_t>>) LossFunction(F f)
      : of_host_(std::move(f)) {}

  Var operator()(const Var& logits, std::span<const int32_t> labels) const { return of_host_(logits, labels); }
  explicit operator bool() const { return of_host_ != nullptr; }
  // nullptr: labels come from the host.
  OfTensor of_tensor() const { return of_tensor_; }

 private:
  std::function<Var(const Var&, std::span<const int32_t>)> of_host_;
  OfTensor of_tensor_ = nullptr;
};

std::vector<std::string> loss_names();
// Throws Error for an unknown name.
LossFunction find_loss(const std::string& name);

}  // namespace bitgrad
