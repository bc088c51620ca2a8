// Quantization phases of a learner. docs/numerics.md section 9.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/train_state.h"

namespace bitgrad::detail {

// Implements Learner::set_phases. The form of a phase depends on the layers' own quantization and on the phases up to
// it, in order, but not on any values.
class Phases {
 public:
  explicit Phases(TrainState& state) : s_(state) {}

  void set(std::vector<QuantPhase> phases);
  const std::vector<QuantPhase>& list() const { return list_; }
  int64_t now() const { return now_; }
  // True after an Error ended the entry of a phase: layers, optimizer and layouts are then inconsistent.
  bool entering() const { return entering_; }
  void enter(int64_t index);
  // Enters the phases whose step has come. Called at the beginning of a window.
  void enter_due();
  // Tries every form once, after planning.
  void try_all();
  // Ends all phases, because the model was converted.
  void end();
  // The first phase of the form that the model has in `phase`, without another form between: precision and compute of
  // every layer, and the switches where they act on something. Values that were measured before it are those of another
  // model. 0 without phases.
  int64_t form_start(int64_t phase) const;

 private:
  // What two phases must have in common for the model's values to be comparable.
  struct PhaseForm {
    std::vector<LayerQuant> layers;
    QuantMode mode;
    friend bool operator==(const PhaseForm&, const PhaseForm&) = default;
  };
  void change_form(int64_t phase);
  void replay(int64_t phase);
  void try_from(int64_t now);
  void try_form(int64_t phase);
  void note_form(int64_t phase);
  void bind_phase(int64_t phase);

  TrainState& s_;
  std::vector<QuantPhase> list_;
  std::vector<LayerQuant> own_;   // of the quantizable layers, before any phase
  std::vector<PhaseForm> forms_;  // by phase, if there are several
  int64_t now_ = 0;
  bool entering_ = false;
};

// The codes of a parameter without master change at every optimizer step. Throws Error if the policy requantizes less
// often.
void check_codes_that_train(const Parameter& p, const RequantPolicy& policy);

// The current phase of a learner with phases, e.g. "phase 1 from step 300: quantization on, observers on".
std::string phase_text(const Learner& learner);

// Logs the table of print_quantization.
void log_quantization(Module& model);

// Logs a table: layer, the rule of `spec` that applied, the layer's current recipe.
void log_choices(Module& model, const PrepareSpec& spec);
// The latest spec among the phases up to the current one; nullptr if there is none.
const PrepareSpec* spec_of_now(const Learner& learner);

}  // namespace bitgrad::detail
