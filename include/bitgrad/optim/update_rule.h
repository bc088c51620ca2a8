// Update rules: how an optimizer updates values, or flips signs, from a finished gradient. One class per file in
// src/optim/, one line each in src/optim/optimizers.inc. The driver (optimizer.h) does the rest of docs/numerics.md
// section 6: it divides and clips gradients, and widens and rounds narrow masters and moments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bitgrad/kernels/quantize_rules.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/optim/optimizer_spec.h"

namespace bitgrad::kernels {
struct SgdArgs;
struct AdamArgs;
using RowUpdate = std::variant<SgdArgs, AdamArgs>;  // kernels/update_rows.h
}  // namespace bitgrad::kernels

namespace bitgrad {

struct StepScalars;  // base/step_scalars.h

// How often a parameter has been updated, and what a rule derives from it.
struct UpdateAge {
  int64_t updates = 0;   // before this one
  float c1 = 1, c2 = 1;  // with t = updates + 1; adam, adamw: 1 - b1^t, 1 - b2^t; adafactor: t^-0.8, t^-0.5
  int place = 0;         // in StepScalars::age
};

// A piece of one parameter: n consecutive elements in row-major order, in fp32.
struct UpdatePiece {
  int64_t n = 0;
  float* w = nullptr;                  // the values; -1 or +1 for rules that flip signs
  float* g = nullptr;                  // finished gradient: divided and clipped; may be overwritten
  std::span<float* const> state = {};  // one entry per moment of moments() with values of elements, n each
  float lr = 0, weight_decay = 0;
  float momentum_factor = 1;  // of the rule's momentum, by its schedule
  UpdateAge age = {};
  // While work of a device is being recorded (base/step_scalars.h): use live->lr * lr_factor instead of lr,
  // base_decay * live->decay instead of weight_decay, live->momentum instead of momentum_factor, and
  // live->age[age.place].
  const StepScalars* live = nullptr;
  float lr_factor = 1, base_decay = 0;
};

// A whole parameter, fp32, dense, for rules that need all of it at once.
struct UpdateMatrix {
  int64_t rows = 0, cols = 0;
  std::span<const int64_t> stacked = {};  // rows of the matrices that it consists of, one below the other
  const float* w = nullptr;               // the values
  float* g = nullptr;                     // what UpdateRule::prepare left of the gradient
  std::span<float* const> state = {};     // one entry per moment of moments() with values of rows or columns
  UpdateAge age = {};
  const StepScalars* live = nullptr;  // as in UpdatePiece
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // One state tensor per parameter: "<parameter path>.<family>.<name>", initially zero.
  enum class Extent : uint8_t { kElements, kRows, kColumns };  // one value of each; of rows and columns always in fp32
  struct Moment {
    std::string_view name = {};
    MomentValues values = MomentValues::kMeans;  // by which moments of 8 and 4 bits are coded
    bool stochastic = false;                     // in bf16: rounded stochastically rather than to nearest even
    Extent extent = Extent::kElements;
  };
  // Rules of the same family share the same state, so that a run may continue with another one.
  virtual std::string_view family() const = 0;
  virtual std::vector<Moment> moments(const Shape& shape) const = 0;
  // Bop: parameters are bint1 codes without a master, and the rule only flips them.
  virtual bool flips_signs() const { return false; }
  // Whether update works on memory of the current device, using kernels (kernels/elementwise.h, maps) without reading
  // the memory itself. Other rules cannot train parameters on a device other than the CPU.
  virtual bool on_device() const { return false; }
  // Whether update reads `live` in place of lr, and takes everything else that changes from step to step from
  // StepScalars, so that its launches can be recorded.
  virtual bool live() const { return false; }
  // For a parameter that has had `updates` updates; called once per parameter and step.
  virtual UpdateAge age_of(int64_t updates) const { return {.updates = updates}; }
  // Whether an update needs all of the gradient at once. Then prepare, direct and update run one after another, each
  // for the whole parameter, and update gets what direct left as g, and no state.
  virtual bool whole_matrix() const { return false; }
  // Whether the rule updates hidden weights alone (Parameter::hidden); OptimizerSpec::aux updates the others.
  virtual bool hidden_only() const { return false; }
  // For rules of whole matrices: updates the state of elements and turns g into what direct needs. Called as update is.
  virtual void prepare(const UpdatePiece& piece) const { static_cast<void>(piece); }
  // For rules of whole matrices: turns g into the direction of the update, by kernels and maps of the current device on
  // all its threads. The sum of squares of every gradient is finite.
  virtual void direct(const UpdateMatrix& matrix) const { static_cast<void>(matrix); }
  // Multiplications of direct for one of the stacked matrices, beside those of the elements.
  virtual int64_t macs(int64_t rows, int64_t cols) const { return static_cast<void>(rows), static_cast<void>(cols), 0; }
  // The equivalent of update on this piece, for device kernels that do more in the same sweep (kernels/update_rows.h);
  // nullopt if there is none, and update is called.
  virtual std::optional<kernels::RowUpdate> row_update(const UpdatePiece& piece) const;
  // Updates a piece and its state. Called concurrently from several threads for disjoint pieces. On a device other than
  // the CPU, called once for a whole parameter, with that device current and pointers into its memory.
  virtual void update(const UpdatePiece& piece) const = 0;
};

std::vector<std::string> optimizer_names();
// The keys of a configuration that apply to this rule and not to all, separated by blanks.
struct OptimizerKeys {
  std::string_view name = {}, keys = {};
};
// Of the rules in src/optim/optimizers.inc, in its order.
std::span<const OptimizerKeys> optimizer_keys();
// Sets the numbers that the spec leaves open to those of its rule, if that is known.
void fill_defaults(OptimizerSpec& spec);
// Throws Error for an unknown name or a value out of range. The rule gets a spec without open numbers.
std::unique_ptr<UpdateRule> make_rule(const OptimizerSpec& spec);
using RuleFactory = std::function<std::unique_ptr<UpdateRule>(const OptimizerSpec&)>;
// Adds a rule from a program or plugin. Throws Error if the name is known.
void register_optimizer(const std::string& name, RuleFactory factory);

}  // namespace bitgrad
