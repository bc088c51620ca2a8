// The quantizer of a layer's input: a layer of its own (kind quantize), or the input of a Quantizable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

class Norm;

// Converts x [n,features], fp32, bf16 or int32 with a scale, to codes; passes x through while switched off.
class ActivationQuantizer final : public Module {
 public:
  // Throws Error if the scheme or the observer rejects `quant`.
  explicit ActivationQuantizer(const ActivationQuant& quant);
  // Sets the number of input features, also set by plan: the size of learned parts and observed ranges per channel(1).
  void describe(int64_t features);

  Var forward(const Var& x) override;
  // Signs of norm(x), optionally followed by max_pool (`pool`), as one op (nn/layers/fusions.h); undefined if they must
  // run one by one.
  Var signs_of(Norm& norm, const Var& x, const PoolOptions* pool);
  Form plan(const Form& in, PlanRequests& requests) override;
  PlanRequests serve(const PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override { return "quantize"; }
  void set_quant_mode(const QuantMode& mode) override;
  const QuantMode& quant_mode() const { return mode_; }
  const ActivationQuant& quant() const { return quant_; }
  // nullptr if there is none.
  const Observer* observer() const { return observer_.get(); }
  // Learned parts: "step", "offset", "clip". Empty if nothing is learned.
  const std::vector<Parameter*>& learned() const { return learned_; }
  // Whether the next batch finds a scale: constant, observed or learned before.
  bool has_scale() const { return observer_ ? observer_->ready() : has_first_values(); }
  // Whether scales are computed from the whole batch, so that the codes of a sample depend on the others.
  bool scales_of_batch() const;
  // Whether a microbatch that learned steps may be fitted to (StepState::fits_steps) would be looked at now.
  bool fits_steps() const;
  // Whether the observer would follow the batches of training now.
  bool observes() const {
    return observer_ && mode_.observers && !frozen() && mode_.quantization != QuantSwitch::kFrozen;
  }
  // The observer follows a batch of training by its range (StepState::observed_ranges).
  void follow(const ObservedRange& range) { observer_->observe(range.ends); }
  // Call after learned parts were set to values of an earlier time, which may be none.
  void values_replaced() { *seen_set_ = false; }

 private:
  void allocate() override;
  void check_rows() const override;
  void add_learned();
  // Scales that hold for every batch; nullptr if computed per batch. Throws Error for a learned step that has no value
  // yet.
  std::shared_ptr<const QuantParams> constant_params() const;
  std::shared_ptr<const QuantParams> own_params() const;  // the same, where its parts are
  bool per_feature() const;
  bool has_first_values() const;
  bool stores() const;
  bool accepts_signs() const;
  bool trains_signs() const;
  std::vector<Var> learned_now(bool first, const QuantSpec& spec, const Tensor& x, uint32_t* flag);
  bool set_first(const QuantSpec& spec, const Tensor& x, uint32_t* flag);
  void refit(const QuantSpec& spec, const Tensor& x);
  void observe(const Tensor& x, uint32_t* flag);
  Var exact(Var codes) const;
  void hold_range(const Tensor& x);
  std::shared_ptr<const QuantParams> observed(const QuantSpec& spec) const;
  std::shared_ptr<const QuantParams> range_params(const QuantSpec& spec, const Tensor& x) const;
  void check_integers(bool offset) const;

  ActivationQuant quant_;
  const Quantizer& quantizer_;
  QuantMode mode_;
  bool transposed_ = false;  // readers also want the training codes in layout transposed
  int64_t features_ = 1;
  DType y_ = dtypes::fp32;  // dtype of float values passed through, set by plan
  bool integers_ = false;   // planned for int32 sums, whose codes are written in one order only
  std::vector<Parameter*> learned_;
  Parameter* marker_ = nullptr;  // the first learned part that the first batch initializes
  std::shared_ptr<bool> seen_set_ = std::make_shared<bool>(false);      // on a device
  std::shared_ptr<int64_t> told_refit_ = std::make_shared<int64_t>(0);  // that steps were fitted again
  std::vector<Var> first_;  // initial values from a batch that stores nothing
  std::unique_ptr<Observer> observer_;
};

}  // namespace bitgrad
