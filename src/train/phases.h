// The phases of quantization of a learner. docs/numerics.md section 9.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/train/checkpoint.h"

namespace bitgrad {

// What Learner::set_phases describes. The form of a phase follows from the layers' own quantization and from the phases
// up to it, in order, whatever the values are.
class Learner::Phases {
 public:
  explicit Phases(Learner& learner) : l_(learner) {}

  void set(std::vector<QuantPhase> phases);
  const std::vector<QuantPhase>& list() const { return list_; }
  int64_t now() const { return now_; }
  // An Error ended the entry of a phase: layers, optimizer and layouts are of no one form.
  bool entering() const { return entering_; }
  void enter(int64_t index);
  // Those whose step has come, at the beginning of a window.
  void enter_due();
  // Every form once, after the plan is known.
  void try_all();
  // No further phase: the model is converted.
  void end();

 private:
  void change_form(int64_t phase);
  void replay(int64_t phase);
  void try_from(int64_t now);
  void try_form(int64_t phase);
  void settle_in(int64_t phase);

  Learner& l_;
  std::vector<QuantPhase> list_;
  std::vector<LayerQuant> own_;  // of the quantizable layers, before phases
  int64_t now_ = 0;
  bool entering_ = false;
};

}  // namespace bitgrad

namespace bitgrad::detail {

// A parameter without a master changes its codes at every optimizer step. Throws Error for another policy.
void check_codes_that_train(const Parameter& p, const RequantPolicy& policy);

// Puts a learner into the phase of a checkpoint that it will load. Throws Error(kData) where it has no such phase.
void enter_phase_of(const CheckpointHeader& header, const std::string& file, Learner& learner);

// "phase 1 from step 300: quantization on, observers on": the current phase, of a learner that has some.
std::string phase_text(const Learner& learner);

// The table of print_quantization, as log lines.
void log_quantization(Module& model);

// A table, as log lines: layer, the rule of `spec` that won, the recipe that holds it now.
void log_choices(Module& model, const PrepareSpec& spec);
// The most recent spec of the phases up to the current one; nullptr: none.
const PrepareSpec* spec_of_now(const Learner& learner);

}  // namespace bitgrad::detail
