// Parameter: a trainable tensor. A low-bit parameter has a float master, the low-bit value used by forward and
// backward, a gradient with its own dtype, and a quantizer that makes the value from the master. A float parameter has
// only a value, which is its own master.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/enum_names.h"
#include "bitgrad/nn/init.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad::kernels {
struct RowCodes;  // kernels/update_rows.h
}

namespace bitgrad {

// The master that a low-bit parameter keeps beside its codes. docs/numerics.md section 6.
enum class MasterKind : uint8_t {
  kFp32,
  kBf16,  // updates are rounded stochastically to bf16
  kNone,  // no master: updates are rounded stochastically into the codes, or flip them (Bop)
};
template <>
struct EnumNames<MasterKind> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "none"};
};
// Storage of an optimizer's moments.
enum class MomentKind : uint8_t {
  kFp32,
  kBf16,  // m rounds to nearest even, v stochastically
  kInt8,  // blocks of 256 elements with an fp32 absmax scale: m as int8, sqrt(v) as uint8; stochastic rounding
};
template <>
struct EnumNames<MomentKind> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "int8"};
};

struct ParameterSpec {
  std::optional<QuantSpec> quant = {};     // nullopt: fp32
  DType grad = dtypes::fp32;               // fp32 or bf16
  Init init = {};                          // empty name: glorot_uniform
  std::optional<float> latent_clamp = {};  // masters are clamped to [-c, c] after each update
  MasterKind master = MasterKind::kFp32;
  std::optional<MomentKind> moments = {};  // nullopt: the optimizer's
  std::string optimizer = {};              // empty: the run's; "bop": bint1 codes without a master
  float lr_factor = 1.0f;                  // relative to the run's learning rate
  std::optional<float> weight_decay = {};  // nullopt: the optimizer's
  std::optional<float> floor = {};         // lower bound, enforced after each update (learned steps and clips)
  bool frozen = false;                     // no gradient, no update
  LearnedSpec learned = {};                // of learned steps, clips and offsets of `quant`
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

class Parameter {
 public:
  // A parameter is described by its spec and then by a shape; memory is allocated in initialize. `name` is used in
  // errors until initialize assigns a path. Throws Error if the quantizer rejects the spec.
  explicit Parameter(ParameterSpec spec, std::string name = {});
  Parameter(Shape shape, ParameterSpec spec, std::string name = {});
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& path() const { return path_; }
  // Sets the shape. `shape` is the weight as kernels read it, [O, K]: all axes but the last are rows. `logical` is the
  // shape shown to users, e.g. [O, kh, kw, C], with the same elements in the same order. `fans` are used for initial
  // values; by default those of the matrix. Describing it again with the same arguments has no effect; with others it
  // throws Error.
  void describe(const Shape& shape, const Shape& logical, Fans fans = {});
  void describe(const Shape& shape) { describe(shape, shape); }
  bool described() const { return shape_.has_value(); }
  bool allocated() const { return value_.defined(); }
  // Throws Error before describe.
  const Shape& shape() const;
  const Shape& logical_shape() const { return shape(), logical_shape_; }
  // dtype of the value: that of the codes, or fp32.
  DType dtype() const { return low_bit() ? spec_.quant->dtype : dtypes::fp32; }
  const ParameterSpec& spec() const { return spec_; }
  bool low_bit() const { return spec_.quant.has_value(); }
  // Low-bit: codes with scales and derived layouts. Float: the fp32 values. Undefined before initialize.
  const Tensor& value() const { return value_; }
  // fp32 or bf16 [shape]. Float parameter: the value itself. Undefined for a low-bit parameter without a master.
  const Tensor& master() const { return low_bit() ? master_ : value_; }
  // False for frozen and converted low-bit parameters, which have codes only.
  bool has_master() const { return master().defined(); }
  // Returns rows [begin, end) of the value as a matrix with their scales. A view, nothing is copied. `begin` must not
  // split a group of rows.
  Tensor value_rows(int64_t begin, int64_t end) const;
  // Learned parts of the scheme, such as "<path>.step": float parameters whose gradient is derived from this one's
  // during the optimizer step (docs/numerics.md section 6, 3). They follow their owner in Module::parameters().
  std::span<const std::unique_ptr<Parameter>> learned() const { return learned_; }
  // Gradient summed over the window's microbatches, in grad_dtype; undefined before the first backward.
  const Tensor& grad() const { return sink_.grad(); }
  bool has_grad() const { return sink_.filled(); }
  DType grad_dtype() const { return spec_.grad; }

  // Returns a leaf on the current tape (one leaf per call, all with the same sink), or a constant if there is no tape
  // or the parameter is frozen. Throws Error before initialize.
  Var read();
  // The same on the dequantized values, a copy of kind derived that is made on the first call and then updated whenever
  // the codes change. For a float parameter equal to read().
  Var read_values();
  void zero_grad() { sink_.clear(); }

  // Draws the master and makes the first value; without a master, draws values in blocks of rows and quantizes them
  // once. Learned parts get the path "<path>.<name>" and their first values. Called once by the owner of the model,
  // when paths are known.
  void initialize(const std::string& path, uint64_t seed);
  // The seed passed to initialize; it also keys the draws of updates.
  uint64_t seed() const { return seed_; }
  // value = quantizer(master), with scales fitted anew (or computed from the current learned parts, of which steps
  // without signal are fitted to the master first, docs/numerics.md section 3), and all planned layouts rewritten.
  // Stochastic rounding is keyed by `step` and `seed`. Does nothing for a float parameter or one without a master. A
  // bf16 master is widened to fp32 in workspace memory, in blocks of rows if scales are row-local or independent of the
  // values, else as a whole. Throws Error before initialize or if `seed` is not that of initialize, and
  // Error(kNonFinite) naming the parameter if the master or a learned part holds NaN or Inf (on devices other than the
  // CPU at the next poll of errors, kernels/flag.h).
  void requantize(uint64_t seed, int64_t step);
  // The same in blocks of whole rows, from values supplied by the caller. Call begin_requantize (with a master) or
  // begin_masterless_codes (without: stochastic rounding by `draws`, element = row-major index in the parameter; kind
  // sign: by the sign), then put_rows exactly once for every row, then end_codes. put_rows may be called from several
  // threads and in any order, for blocks that begin at multiples of row_unit(). It overwrites the codes of its rows;
  // value() keeps the old scales until end_codes. x [rows, cols] are the fp32 values of rows begin, begin + 1, ...
  // Requires scales_are_row_local(), otherwise x must hold all rows. put_rows throws Error(kNonFinite) naming the
  // parameter if x holds NaN or Inf; the codes are unusable then.
  void begin_requantize(uint64_t seed, int64_t step);
  void begin_masterless_codes(const RandomStream& draws);
  void put_rows(int64_t begin, const Tensor& x);
  void end_codes();
  // Why a device kernel that updates the values in the same sweep (kernels/update_rows.h) cannot write the codes of all
  // rows; empty if it can, provided that scales_are_row_local().
  std::string not_swept() const;
  // Used instead of put_rows where not_swept() is empty: the destinations that this kernel writes until end_codes,
  // layouts transposed and frag64 included. Errors as in put_rows, when errors are polled.
  kernels::RowCodes sweep_codes();
  // Between put_rows and end_codes: packs rows [begin, end) into the layouts that are packed by rows (dtype/layout.h)
  // while their codes are in cache. `begin` is a multiple of 16. Call it for all rows or for none; in the latter case
  // end_codes packs them. On devices other than the CPU end_codes always packs them.
  void pack_rows(int64_t begin, int64_t end);
  // Whether scales are row-local or independent of the values: channel(0), token, groups along a row, constant scales,
  // learned scales.
  bool scales_are_row_local() const;
  // Number of rows that share a scale (groups along axis 0); 1 otherwise.
  int64_t row_unit() const;
  // Sets the sharpness of straight-through rule tanh for this progress of the run, 0 to 1.
  void set_progress(double progress);
  // Adds a layout that the chosen kernels read; written now and by every requantize.
  void add_layout(Layout layout);
  // While on, new scales overwrite the old ones in place, so that recorded device work finds them. While off, they get
  // new memory, so that tensors with the old codes keep the old scales.
  void keep_params_in_place(bool on) { params_stay_ = on; }
  // Marks the gradient as filled, after a recorded backward has added to it again.
  void mark_grad() { sink_.done(); }
  // Sets the gradient to zeros, on a rank whose microbatches did not reach this parameter.
  void make_zero_grad();
  // Drops all layouts but the canonical one, until others are added.
  void forget_layouts();
  // Turns stochastic rounding of bf16 gradient sums on or off, keyed by path and microbatch.
  void set_gradient_rounding(bool stochastic, uint64_t seed, int64_t microbatch);

  // Where a window with a single microbatch may send its gradient in blocks of rows, instead of grad() (GradRows in
  // tape.h). nullptr: nowhere.
  void set_gradient_rows(GradRows* rows) { sink_.set_rows(rows); }
  // The draws chosen by set_gradient_rounding; nullptr: round to nearest even.
  const RandomStream* gradient_rounding() const { return sink_.rounding(); }

  // The current values as fp32 [shape]: the widened master, or without one the dequantized codes. Shares memory with an
  // fp32 master.
  Tensor dequantized() const;
  // Replaces the values by x, fp32 [shape]: they become the master, or without one the values that codes are made from.
  // Learned parts are initialized again, and codes and scales are made anew, even while scales are frozen, with the
  // draws of (seed of initialize, step). Layouts are kept. Call after initialize. Throws Error for another shape or
  // dtype and for a converted parameter.
  void assign(const Tensor& x, int64_t step);
  // Changes the precision of the value; nullopt: fp32, its own master. Values are kept: fp32 values become a master of
  // this kind, from which codes are made with the draws of (seed of initialize, step). Going back to fp32, the value
  // becomes the widened master, or without one the dequantized codes. Learned parts are made anew; layouts and gradient
  // are dropped. Does nothing if spec and kind are unchanged; before initialize, changes only the spec. Throws Error
  // before anything changes if the quantizer rejects the spec, and for a converted parameter.
  void set_quant(const std::optional<QuantSpec>& quant, MasterKind master, int64_t step);
  // Sets the gradient dtype (fp32 or bf16), the clamp of masters and the settings of learned parts. If any of
  // them changes, drops the gradient summed so far.
  void set_training(DType grad, std::optional<float> latent_clamp, const LearnedSpec& learned);
  // While on, scales are fixed: requantize makes codes with the current scales, and learned parts do not train.
  void freeze_scales(bool on);
  bool scales_frozen() const { return scales_frozen_; }
  // Irreversibly reduces the parameter to its value: no master, no learned parts, no gradient.
  void convert();
  bool converted() const { return converted_; }
  // While on, no gradient and no update. For float parameters at any time, for low-bit ones only before initialize
  // (they then never allocate a master); else throws Error.
  void set_frozen(bool on);

  // Restores a checkpoint: codes and scales byte for byte, since they come from the masters of the last requantization.
  // `master` must be undefined for a parameter without one. Throws Error if a shape or dtype differs.
  void restore(const Tensor& master, const Tensor& value);

 private:
  struct Requantization;  // state between begin_requantize or begin_masterless_codes and end_codes
  using Numbers = std::function<void(int64_t begin, const Tensor& x)>;  // fills x with the rows from `begin` on

  Var leaf(const Tensor& value);
  void require_ready(std::string_view where) const;
  // Writes the planned layouts, except those for which `written` returns true.
  void write_layouts(const std::function<bool(Layout)>& written = nullptr);
  void allocate();
  void requantize_from(const Numbers& numbers, int64_t step);
  void make_learned(const Tensor& x);
  void refit_learned(int64_t step);
  bool scales_given() const { return scales_frozen_ && value_.quant() != nullptr; }
  std::shared_ptr<const QuantParams> learned_params(int64_t step) const;
  std::shared_ptr<const QuantParams> given_params(int64_t step) const;
  void begin_codes(const QuantSpec& spec, const RandomStream& draws, std::shared_ptr<const QuantParams> given);
  void put_codes(int64_t begin, const Tensor& x);
  bool attach_transposed(Tensor& codes) const;
  void put_all(const Numbers& numbers, bool copies);
  Tensor block_of_rows(int64_t begin, int64_t end, bool copies) const;

  std::string path_;
  uint64_t seed_ = 0;
  std::optional<Shape> shape_;
  Shape logical_shape_;
  Fans fans_;
  ParameterSpec spec_;
  const Quantizer* quantizer_ = nullptr;
  Tensor master_, value_;
  Tensor dequantized_;  // fp32 [shape]; undefined until read_values
  std::vector<std::unique_ptr<Parameter>> learned_;
  std::vector<Layout> planned_;
  std::shared_ptr<Requantization> next_;
  bool ready_ = false;  // has values: from initialize, assign or restore
  bool scales_frozen_ = false, converted_ = false, params_stay_ = false;
  std::shared_ptr<bool> told_refit_ = std::make_shared<bool>(false);  // that learned steps were fitted again
  AccumulateSink sink_;
  RandomStream gradient_draws_;
};

}  // namespace bitgrad
