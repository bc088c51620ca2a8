// The optimizer: one step of all parameters from their gradients (docs/numerics.md section 6), in this order:
//   divide by the count of the window (samples, or tokens of a loss per position); quantizer backward
//   (straight-through, gradients of learned parts); value clip; global-norm clip; for rules of whole matrices the
//   direction; decay; update; latent clamp and floor; requantize when due.
// A single sweep over blocks of rows does all of this: while the values are in cache, narrow masters and moments are
// widened and rounded again, and codes and layouts are made. Parameters without a master are dequantized, updated and
// rounded back to codes.
//
// Fused: after arm(), ops pass gradients to this sweep during backward as blocks of whole rows, so that the whole
// gradient of a weight never exists. The bits are the same as those of a step after backward.
//
// Parameters are on the device that is current when they are attached and updated. On a device other than the CPU the
// step follows backward and works on whole tensors, if possible with one kernel per parameter (not_one_kernel). It
// waits for the device once, before any update.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/dist/wire_format.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/optim/requant.h"
#include "bitgrad/optim/update_rule.h"

namespace bitgrad {

class Communicator;

namespace detail {
class RowGather;
class RowShares;
class SquareSums;
}  // namespace detail

// What schedules multiply the numbers of rules by.
struct RuleFactors {
  float decay = 1;     // weight decay
  float momentum = 1;  // momentum of sgd, muon and normuon
  friend bool operator==(const RuleFactors&, const RuleFactors&) = default;
};

// What a rank of several needs, of the rank that needs most.
struct RankTraffic {
  int64_t gradients = 0;  // bytes that it sends in a step
  int64_t values = 0;     // those of codes with their scales, and of float values, in a step that requantizes
  int64_t state = 0;      // bytes of masters and moments that it holds between steps
};

class Optimizer {
 public:
  // Throws Error for an unknown rule or a value out of range.
  explicit Optimizer(OptimizerSpec spec);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Creates the state of these parameters and of their learned parts, which must outlive the optimizer or the next
  // attach. Frozen ones are left out. May be called again between steps: the state of a parameter with the same path,
  // shape, family and moments is kept with its count of updates, other state is zero, and the count of steps goes on.
  // Previously attached parameters may no longer exist. Throws Error naming the parameter for a combination of rule,
  // master, scheme and dtype that cannot be trained (docs/numerics.md section 6); the previously attached parameters
  // then stay attached.
  void attach(const std::vector<Parameter*>& parameters);
  // Throws what attach would throw; changes nothing.
  void check(const std::vector<Parameter*>& parameters);
  // Performs one step at rate lr, then zeroes the gradients. Gradients are sums over `count` samples, or tokens for
  // losses that count those, or over samples of that total weight. Parameters without a gradient are not updated. With
  // `due`, every parameter with a master is requantized, even those without a gradient. Throws Error(kNonFinite) naming
  // the parameter if a gradient or the sum for a learned part contains NaN or Inf, or if the global norm overflows.
  // Unless rows were already updated in backward, no parameter or state has changed then, and the gradients of this
  // window are useless. If updated values are not finite, throws Error(kNonFinite) naming the parameter, and leaves
  // partially_updated() set. The CPU detects this in the same step; a device detects values that become codes when the
  // errors are polled, and other values by the loss or when they are saved.
  void step(float lr, double count, const RequantKey* due = nullptr);

  // Begins a step that `step` must complete with the same arguments. From now on parameters for which not_fused() is
  // empty are updated inside backward, if an op passes their gradient in rows and they are read once on the tape. The
  // forward pass must have been checked for non-finite values, and the window must consist of this one backward. A
  // gradient that is not finite throws Error(kNonFinite) naming the parameter from backward.
  void arm(float lr, double count, const RequantKey* due = nullptr);
  // Cancels arm() after a failed backward.
  void disarm();
  // True if an Error left the parameters partly updated: nothing that was attached is usable then. On a device other
  // than the CPU this is known once the errors are polled (kernels/flag.h).
  bool partially_updated() const { return partially_updated_ || *lost_; }
  // The parts of step, in order, as a list of stages that a device may record (train/step.h, base/device.h):
  //   begin_step     host: selects the parameters that take part
  //   check_gradients
  //                  queues the gradient checks, gradients of learned parts and the sum of squares; then poll_errors()
  //                  fills `sums`
  //   begin_update   host: learning rate, norm factor; from here on an Error leaves partially_updated() set
  //   apply          updates, including codes made in the same sweep
  //   requantize     codes that are due and were not made by apply
  //   end_step       host
  void begin_step(float lr, double count);
  void check_gradients(double count, detail::SquareSums& sums);
  void begin_update(float lr, double count, const detail::SquareSums& sums);
  void apply(const RequantKey* due);
  void requantize(const RequantKey* due);
  void end_step();
  // Writes the scalars that recorded work of this step reads. Call after begin_update.
  void write_scalars(StepScalars& live) const;
  // Changes when recorded work of `apply` would read the scalars of other parameters. Call after begin_update.
  int64_t placements() const { return placements_; }
  // Makes this optimizer one of several ranks, on the CPU: each updates some rows of a large parameter and gets the new
  // codes, or fp32 values, of the others. Until gather_state a rank holds masters and moments of its own rows only; the
  // pages of others go back to the system. Bits are those of one rank. A parameter whose update or
  // codes need all rows (rules of whole matrices, learned parts, most scales that span rows) has one owner. Call it on
  // all ranks before the first step; step, requantize and gather_state then communicate, in the order of attach, and
  // throw as Communicator::wait. Who catches an Error of one rank must cancel the communicator, as Learner does.
  void set_ranks(std::shared_ptr<Communicator> ranks);
  // The rows of each rank; nullptr: every rank updates all of them.
  const detail::RowShares* shares(const Parameter& parameter) const;
  // Whether masters and moments of all rows are here, as the last step left them.
  bool whole() const;
  // Where they are to be; the first rank is the one that writes files.
  enum class Place : uint8_t { kOwners, kFirstRank, kAllRanks };
  // Brings them there. more: another fp32 tensor [shape] of a parameter with a master that is kept by rows; undefined:
  // none.
  void gather_state(Place place, const std::function<Tensor(const Parameter&)>& more = nullptr);
  // What ranks would need; `ranks` of them, at least 1. Without the results and statistics of a window.
  RankTraffic traffic(int64_t ranks, WireFormat wire) const;
  // Why the work of a step cannot be recorded; empty if it can.
  std::string not_recorded() const;
  // Why updates of a parameter are never fused; empty if they are, wherever ops allow it.
  std::string not_fused(const Parameter& parameter) const;
  // Why the step of a parameter on a device, from its gradient to its codes, takes more than one kernel; empty if it
  // takes one (kernels/update_rows.h).
  std::string not_one_kernel(const Parameter& parameter) const;
  // For the last step, in the order of attach, without learned parts: whether each update was fused, and if not, why.
  struct FusedUpdate {
    std::string path = {};
    std::string why_not = {};  // empty if fused
  };
  const std::vector<FusedUpdate>& fused_updates() const { return updates_; }

  const OptimizerSpec& spec() const { return spec_; }
  // Multiplications of one step that come with whole matrices (muon, normuon).
  int64_t macs() const;
  int64_t steps() const { return steps_; }
  // Global norm of the last step, before clipping; 0 unless OptimizerSpec::measures_norm.
  float last_norm() const { return last_norm_; }

  // The state that a checkpoint stores besides the step count, sharing memory with the optimizer:
  // "<parameter path>.<family>.<part>": fp32, bf16 [shape], or int8, uint8 [numel] with ".unit", fp32 [blocks of 256];
  // in 4 bits uint8 [(numel + 1) / 2], the code of element 2i in the low bits.
  struct StateTensor {
    std::string name = {};
    Tensor tensor = {};
  };
  std::vector<StateTensor> state() const;
  // For resuming: `steps` steps have been done, and every parameter was updated in each, except those in `own`.
  void set_steps(int64_t steps);
  // The parameters whose count of updates is not that of the steps, by path: those that joined later, or had no
  // gradient in some steps. Throws Error for a parameter that is not attached.
  std::map<std::string, int64_t> own_updates() const;
  void set_own_updates(const std::map<std::string, int64_t>& own);
  // Factors of the weight decay and of the momentum of every rule, from the next step on.
  void set_factors(const RuleFactors& factors);

 private:
  struct Entry;
  class FusedRows;
  struct Armed {
    float lr;
    double count;
    std::optional<RequantKey> due;
  };
  using Entries = std::vector<std::unique_ptr<Entry>>;
  using EntriesByPath = std::multimap<std::string, Entry*>;
  std::unique_ptr<Entry> make_entry(Parameter* parameter, const EntriesByPath& before);
  std::string not_fused(const Parameter& parameter, const Entry* entry) const;
  // A rule, and the spec that it was made from: the run's, that of aux, or that of a rule that a parameter names.
  struct Rule {
    OptimizerSpec spec;
    std::unique_ptr<UpdateRule> rule;
    float lr_factor = 1;  // of the run's learning rate
  };
  const Rule& rule_of(const Parameter& parameter);
  void check_finite(const Entry& entry, const Tensor& gradient) const;
  std::string_view what_is_left() const;  // of the model, for errors of gradients
  [[noreturn]] void refuse(const Parameter& parameter) const;
  bool norm_in_one_pass(const Entry& entry) const;
  bool finishes_early(const Entry& entry) const;
  void finish_early(Entry& entry, double count, detail::SquareSums* sums);
  void check_all_rows(Entry& entry, double count, detail::SquareSums& sums);
  int64_t matrix_macs(const Entry& entry) const;
  float norm_factor(double sum_of_squares);
  // On several ranks (optimizer_owners.cpp, optimizer_ranks.cpp). OwnSquares: terms of the norm from the own rows of
  // the parameter of `index` in SquareSums.
  struct OwnSquares {
    const Entry* entry;
    size_t index;
    std::vector<float> terms;
  };
  std::map<const Entry*, int64_t> deal(int64_t ranks) const;
  std::vector<std::optional<detail::RowShares>> shares_of(int64_t ranks) const;  // by entry
  bool shareable(const Entry& entry) const;
  bool one_owner(const Entry& entry) const;
  std::vector<float> check_own_rows(Entry& entry, double count);
  int64_t square_terms(const Entry& entry, int64_t rank) const;
  void gather_squares(const std::vector<OwnSquares>& own, detail::SquareSums& sums) const;
  void apply_shared(const RequantKey* due);
  void leave_to_owners();
  void sweep_own_rows(Entry& entry, const RequantKey* due, detail::RowGather& gather);
  void code_own_rows(const RequantKey& due, detail::RowGather& gather);
  void requantize_shared(const Entry& entry, const RequantKey& due) const;
  template <typename Use>
  void each_shared(const Use& use) const;
  void check_squares(const detail::SquareSums& sums) const;
  void place_ages();
  void check_step(float lr, double count) const;
  std::string why_not(const Entry& entry) const;
  void unfuse(Entry& entry);

  // Scalars of the current step.
  struct Now {
    float lr = 0;
    double count = 1;
    float factor = 1;
  };

  OptimizerSpec spec_;
  int64_t steps_ = 0;
  Now now_;
  RuleFactors factors_;
  int64_t placements_ = 0, ages_ = 0;
  float last_norm_ = 0;
  std::optional<Armed> armed_;
  bool partially_updated_ = false;
  std::shared_ptr<bool> lost_ = std::make_shared<bool>(false);  // half moved, found after the step; shared with checks
  std::vector<FusedUpdate> updates_;
  std::map<std::string, Rule> rules_;  // by what parameters name: "" is the run's
  Entries entries_;
  std::shared_ptr<Communicator> ranks_;  // nullptr: one
  Place place_ = Place::kAllRanks;       // the same on all ranks
};

// Same as the constructor.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);

}  // namespace bitgrad
