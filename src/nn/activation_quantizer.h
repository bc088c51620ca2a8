// The quantizer of what a layer takes in: a layer of its own (kind quantize), or the input of a Quantizable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/quant/observer.h"

namespace bitgrad {

// Plain data that describes one.
struct ActivationQuant {
  QuantSpec spec;
  std::optional<ObserverSpec> observer;
  DType grad = dtypes::fp32;  // of the gradient that leaves it
  float learned_lr_factor = 1.0f;
  std::optional<float> learned_weight_decay;
  friend bool operator==(const ActivationQuant&, const ActivationQuant&) = default;
};

// x [n,features] fp32 or bf16, or int32 with a scale, becomes codes; while switched off it passes as it is.
class ActivationQuantizer final : public Module {
 public:
  // Throws Error when the scheme or the observer refuses.
  explicit ActivationQuantizer(const ActivationQuant& quant);
  // The features of the input, which plan says too: learned parts and observed ranges per channel(1) have so many.
  void describe(int64_t features);

  Var forward(const Var& x) override;
  Var forward_fused(Module& previous, const Var& x) override { return signs_of(previous, x, nullptr); }
  // The signs of a norm, and max_pool of them where `pool` is given, as one; undefined where they cannot be fused.
  Var signs_of(Module& previous, const Var& x, const PoolOptions* pool);
  Form plan(const Form& in, PlanRequests& requests) override;
  PlanRequests serve(const PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override { return "quantize"; }
  void set_quant_mode(const QuantMode& mode) override;
  const QuantMode& quant_mode() const { return mode_; }
  const ActivationQuant& quant() const { return quant_; }
  // nullptr: none.
  const Observer* observer() const { return observer_.get(); }
  // Learned parts: "step", "offset", "clip". Empty: nothing is learned.
  const std::vector<Parameter*>& learned() const { return learned_; }

 private:
  void allocate() override;
  void check_rows() const override;
  void add_learned();
  // Scales that hold for every batch; null: they are found from each. Throws Error for a learned step without a value.
  std::shared_ptr<const QuantParams> constant_params() const;
  bool per_feature() const;
  bool has_first_values() const;
  bool stores() const;
  bool accepts_signs() const;
  bool trains_signs() const;
  std::vector<Var> learned_now(const QuantSpec& spec, const Tensor& x, uint32_t* flag);
  bool set_first(const QuantSpec& spec, const Tensor& x, uint32_t* flag);
  void observe(const Tensor& x, uint32_t* flag);
  std::shared_ptr<const QuantParams> observed(const QuantSpec& spec) const;
  std::shared_ptr<const QuantParams> range_params(const QuantSpec& spec, const Tensor& x) const;
  void check_integers(bool offset) const;

  ActivationQuant quant_;
  const Quantizer& quantizer_;
  QuantMode mode_;
  bool transposed_ = false;  // readers want the codes that are trained on in layout transposed too
  int64_t features_ = 1;
  DType y_ = dtypes::fp32;  // of float values that pass, as planned
  bool integers_ = false;   // planned for int32 sums, whose codes are made in one order
  std::vector<Parameter*> learned_;
  Parameter* marker_ = nullptr;  // the first learned part that is not known from the start
  mutable bool seen_set_ = false;
  std::vector<Var> first_;  // of a batch that stores nothing
  std::unique_ptr<Observer> observer_;
};

}  // namespace bitgrad
