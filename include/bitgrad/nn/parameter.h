// Parameter: a trainable tensor. A low-bit parameter has a float master, the low-bit value used by forward and
// backward, a gradient with its own dtype, and a quantizer that makes the value from the master. A float parameter has
// only a value, which is its own master.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/precision.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

class Parameter;
class Requantization;
namespace detail {
class LearnedParts;
}

// Where the value of a parameter lies: its codes and scales, and the derived layouts of the codes.
class ValueMemory {
 public:
  // Adds a layout that the chosen kernels read; written now and by every requantization. Has no effect on fp32 values.
  void add_layout(Layout layout);
  // Drops all layouts but the canonical one, until others are added.
  void forget_layouts();
  // While on, new scales overwrite the old ones in place, so that recorded device work finds them. While off, they get
  // new memory, so that tensors with the old codes keep the old scales.
  void keep_params_in_place(bool on) { in_place_ = on; }

 private:
  friend class Parameter;
  friend class Requantization;
  void set_params(const std::shared_ptr<const QuantParams>& params);
  // Writes the planned layouts, except those for which `written` returns true.
  void write_layouts(const std::function<bool(Layout)>& written = nullptr);
  void keep_one_layout();

  Tensor value_;
  std::vector<Layout> planned_;
  bool in_place_ = false;
  bool one_layout_ = false;  // once planned, codes that are only read stay in that layout alone (Tensor::keep_only)
};

// What a checkpoint stores of a parameter. The value is undefined for a float parameter, the master for one without.
struct ParameterState {
  Tensor master = {}, value = {};
};

// What a read of a low-bit parameter returns: its codes, or fp32 values dequantized from them.
enum class ReadAs : uint8_t { kCodes, kValues };

class Parameter {
 public:
  // A parameter is described by its spec and then by a shape; memory is allocated in initialize. An empty shape: it is
  // described later. `name` is used in errors until initialize assigns a path. Throws Error if the quantizer rejects
  // the spec.
  Parameter(const Shape& shape, ParameterSpec spec, std::string name = {});
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& path() const { return path_; }
  // Sets the shape. `shape` is the weight as kernels read it, [O, K]: all axes but the last are rows. `logical` is the
  // shape shown to users, e.g. [O, kh, kw, C], with the same elements in the same order; empty: `shape`. `fans` are
  // used for initial values; by default those of the matrix. Describing it again with the same arguments has no effect;
  // with others it throws Error.
  void describe(const Shape& shape, const Shape& logical = {}, Fans fans = {});
  bool described() const { return shape_.has_value(); }
  // Throws Error before describe.
  const Shape& shape() const;
  const Shape& logical_shape() const { return shape(), logical_shape_; }
  const ParameterSpec& spec() const { return spec_; }
  bool low_bit() const { return spec_.quant.has_value(); }
  // Low-bit: codes with scales and derived layouts. Float: the fp32 values. Undefined before initialize. Codes of a
  // read-only parameter with a derived layout exist in that layout only, until something reads the canonical ones.
  const Tensor& value() const { return memory_.value_; }
  ValueMemory& memory() { return memory_; }
  // fp32 or bf16 [shape]. Float parameter: the value itself. Undefined for a low-bit parameter without a master.
  const Tensor& master() const { return low_bit() ? master_ : value(); }
  // False for frozen, converted and read-only low-bit parameters, which have codes only.
  bool has_master() const { return master().defined(); }
  // Learned parts of the scheme, such as "<path>.step": float parameters whose gradient is derived from this one's
  // during the optimizer step (docs/numerics.md section 6, 3). They follow their owner in Module::parameters().
  std::span<const std::unique_ptr<Parameter>> learned() const;
  // Whether rules of hidden weights (UpdateRule::hidden_only) update it: weights of linear and convolutional layers and
  // their adapters, but not of the last layer and none that an embedding shares (mark_hidden_weights).
  bool hidden() const { return hidden_; }
  void set_hidden(bool hidden) { hidden_ = hidden; }
  // Rows of the matrices that its reader takes it for, such as those of q, k and v; empty: one matrix, or
  // spec().matrices of equal size.
  const std::vector<int64_t>& stacked() const { return stacked_; }
  void set_stacked(std::vector<int64_t> rows) { stacked_ = std::move(rows); }
  // The gradient summed over the window's microbatches, in spec().grad, where one microbatch sends it, and how its sums
  // round.
  AccumulateSink& grad_sink() { return sink_; }
  // Its tensor; undefined before the first backward.
  const Tensor& grad() const { return sink_.grad(); }

  // Returns a leaf on the current tape (one leaf per call, all with the same sink), or a constant if there is no tape
  // or the parameter does not train. kValues: of a copy of kind derived that is made on the first call and then updated
  // whenever the codes change; float parameters have none. Throws Error before initialize.
  Var read(ReadAs as = ReadAs::kCodes);

  // Draws the master and makes the first value; without a master, draws values in blocks of rows and quantizes them
  // once. Learned parts get the path "<path>.<name>" and their first values. Called once by the owner of the model,
  // when paths are known.
  void initialize(const std::string& path, uint64_t seed);
  // In place of initialize, for a parameter that is only read and whose values a file has: sets path and seed, and
  // leaves it unset, without draws and memory, until restore or assign, which put it on the device current here. A
  // low-bit one then has codes only, whatever spec().master says, and does not train; its learned parts are made only
  // if assign needs them.
  void leave_unset(const std::string& path, uint64_t seed);
  bool read_only() const { return read_only_; }
  // Whether it has values: from initialize, restore or assign on.
  bool has_values() const { return ready_; }
  // Whether reads on a tape are leaves and optimizers update it: neither frozen nor read only.
  bool trains() const { return !spec_.frozen && !read_only_; }
  // Throws Error that names the parameter if it has no values.
  void require_values(std::string_view where) const;
  // The seed passed to initialize; it also keys the draws of updates.
  uint64_t seed() const { return seed_; }
  // value = quantizer(master), with scales fitted anew (or computed from the current learned parts, of which steps
  // without signal are fitted to the master first, docs/numerics.md section 3), and all planned layouts rewritten.
  // Stochastic rounding is keyed by `step` and `seed`. Does nothing for a float parameter or one without a master. A
  // bf16 master is widened to fp32 in workspace memory, in blocks of rows if scales are row-local or independent of the
  // values, else as a whole. Throws Error before initialize or if `seed` is not that of initialize, and
  // Error(kNonFinite) naming the parameter if the master or a learned part holds NaN or Inf (on devices other than the
  // CPU at the next poll of errors, kernels/flag.h). For codes of values that come in blocks of rows see
  // nn/requantization.h.
  void requantize(uint64_t seed, int64_t step);
  // Replaces the values by x, fp32 [shape]: they become the master, or without one the values that codes are made from.
  // Learned parts are initialized again, and codes and scales are made anew, even while scales are frozen, with the
  // draws of (seed of initialize, step). Layouts are kept. Call after initialize. Throws Error for another shape or
  // dtype and for a converted parameter.
  void assign(const Tensor& x, int64_t step);
  // Restores a checkpoint: codes and scales byte for byte, since they come from the masters of the last requantization.
  // Throws Error if a shape or dtype differs. A parameter that is unset keeps the tensors themselves, not copies.
  void restore(const ParameterState& state);
  // Changes settings: `edit` gets a copy of spec() to change, of which
  // - quant and master: the precision of the value. Values are kept: fp32 values become a master of this kind, from
  //   which codes are made with the draws of (seed of initialize, step). Going back to fp32, the value becomes the
  //   widened master, or without one the dequantized codes. Learned parts are made anew; layouts and gradient are
  //   dropped. A converted parameter has none to change. ste_t, which follows the progress of a run, is only stored.
  // - grad, latent_clamp and the settings of learned parts: drop the gradient summed so far.
  // - frozen: for float parameters at any time, for low-bit ones only before initialize (they then never allocate a
  //   master).
  // - scales_frozen, converted: see ParameterSpec.
  // Before initialize, changes only the spec. Throws Error before anything changes if the change is not allowed or the
  // quantizer rejects the spec.
  void change(const std::function<void(ParameterSpec&)>& edit, int64_t step = 0);

 private:
  friend class Requantization;
  using Rows = std::function<void(int64_t begin, const Tensor& x)>;  // fills x with the rows from `begin` on

  Var leaf(const Tensor& value);
  // Where its kernels run, whatever device is current.
  Device device() const { return value().defined() ? value().device() : read_only_ ? unset_on_ : current_device(); }
  void allocate();
  void make_learned();
  void adopt(const ParameterState& state);
  std::shared_ptr<const QuantParams> given_params(int64_t step) const;
  void set_precision(ParameterSpec to, int64_t step);
  void requantize_from(const Rows& rows, int64_t step);
  void fill_master(const Rows& rows) const;

  std::string path_;
  uint64_t seed_ = 0;
  std::optional<Shape> shape_;
  Shape logical_shape_;
  Fans fans_;
  ParameterSpec spec_;
  ValueMemory memory_;
  Tensor master_;
  Tensor dequantized_;                             // fp32 [shape]; undefined until read as values
  std::shared_ptr<detail::LearnedParts> learned_;  // nullptr: the scheme has none
  bool hidden_ = false;
  std::vector<int64_t> stacked_;
  bool ready_ = false;  // has values: from initialize, assign or restore
  bool read_only_ = false;
  Device unset_on_ = {};  // where the values of a read-only parameter go
  AccumulateSink sink_;
};

// The current values as fp32 [shape]: the widened master, or without one the dequantized codes. Shares memory with an
// fp32 master.
Tensor dequantized(const Parameter& p);

}  // namespace bitgrad
