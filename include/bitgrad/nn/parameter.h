// Parameter: what trains. A low-bit parameter has a float master, the low-bit value that forward and backward read, a
// gradient with a dtype of its own, and a quantizer that makes the value from the master. A float parameter has a value
// only: it is its own master.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/init.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

// What a low-bit parameter keeps beside its codes. docs/numerics.md section 6.
enum class MasterKind : uint8_t {
  kFp32,
  kBf16,  // the update is rounded stochastically to bf16
  kNone,  // no master: the update is rounded stochastically into the codes, or (Bop) flips them
};
std::string_view master_name(MasterKind kind);  // "fp32", "bf16", "none"
// How an optimizer keeps its moments.
enum class MomentKind : uint8_t {
  kFp32,
  kBf16,  // m to nearest even, v stochastically
  kInt8,  // blocks of 256 elements with an fp32 absmax scale; m int8, v uint8 of sqrt v; stochastic
};
std::string_view moment_name(MomentKind kind);  // "fp32", "bf16", "int8"

struct ParameterSpec {
  std::optional<QuantSpec> quant = {};     // none: fp32
  DType grad = dtypes::fp32;               // fp32 or bf16
  Init init = {};                          // an empty name: glorot_uniform
  std::optional<float> latent_clamp = {};  // masters are clamped to [-c, c] after each update
  MasterKind master = MasterKind::kFp32;
  std::optional<MomentKind> moments = {};  // none: those of the optimizer
  std::string optimizer = {};              // empty: the run's; "bop": bint1 codes without a master
  float lr_factor = 1.0f;                  // of the run's learning rate
  std::optional<float> weight_decay = {};  // none: that of the optimizer
  std::optional<float> floor = {};  // numbers are kept at or above it after each update (learned steps and clips)
  bool frozen = false;              // no gradient, no update
  float learned_lr_factor = 1.0f;   // of learned steps, clips and offsets of `quant`
  std::optional<float> learned_weight_decay = {};
};

class Parameter {
 public:
  // Described by its spec, then by a shape; it has memory from initialize on. Throws Error when the quantizer refuses
  // the spec. `name`: of errors, until initialize gives it a path.
  explicit Parameter(ParameterSpec spec, std::string name = {});
  Parameter(Shape shape, ParameterSpec spec, std::string name = {});
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& path() const { return path_; }
  // [O, K] of a weight, as kernels read it: all axes of `shape` but the last are rows. `logical`: as people see it,
  // such as [O, kh, kw, C]; the same number of elements in the same order. fans: of initial values; those of a matrix
  // where they are left out. Once; the same again changes nothing, another shape throws Error.
  void describe(const Shape& shape, const Shape& logical, Fans fans = {});
  void describe(const Shape& shape) { describe(shape, shape); }
  bool described() const { return shape_.has_value(); }
  bool allocated() const { return value_.defined(); }
  // Throws Error before describe.
  const Shape& shape() const;
  const Shape& logical_shape() const { return shape(), logical_shape_; }
  // Of the value: that of the codes, or fp32.
  DType dtype() const { return low_bit() ? spec_.quant->dtype : dtypes::fp32; }
  const ParameterSpec& spec() const { return spec_; }
  bool low_bit() const { return spec_.quant.has_value(); }
  // Low-bit: codes with scales and derived layouts. Float: the fp32 values. Undefined before initialize.
  const Tensor& value() const { return value_; }
  // fp32 or bf16 [shape]; the value itself for a float parameter; undefined for a low-bit parameter without a master.
  const Tensor& master() const { return low_bit() ? master_ : value_; }
  // A frozen or converted low-bit parameter has codes only.
  bool has_master() const { return master().defined(); }
  // Rows [begin, end) of the value as a matrix, with their scales: a view, nothing is copied. begin must not cut a
  // group of rows.
  Tensor value_rows(int64_t begin, int64_t end) const;
  // Learned parts of the scheme, such as "<path>.step": float parameters whose gradient comes from this one's in the
  // optimizer's step (docs/numerics.md section 6, 3). They follow their owner in Module::parameters().
  std::span<const std::unique_ptr<Parameter>> learned() const { return learned_; }
  // The gradient summed over the microbatches of the window, in grad_dtype; undefined before the first backward.
  const Tensor& grad() const { return sink_.grad(); }
  bool has_grad() const { return sink_.filled(); }
  DType grad_dtype() const { return spec_.grad; }

  // A leaf on the current tape (each call one leaf on the same sink), or a constant when there is none. Throws Error
  // before initialize.
  Var read();
  // The same on the fp32 values of the codes: a copy (kind derived), made on the first call and from then on whenever
  // the codes are. A float parameter: read().
  Var read_values();
  void zero_grad() { sink_.clear(); }

  // Draws the master and makes the first value (without a master: draws numbers in blocks of rows and quantizes them
  // once); learned parts get the path "<path>.<name>" and their first values. Called once by the owner of the model,
  // when paths are known.
  void initialize(const std::string& path, uint64_t seed);
  // The seed of initialize: it keys the draws of updates too.
  uint64_t seed() const { return seed_; }
  // value = quantizer(master), scales fitted anew (or made of the learned parts as they are now), all planned layouts
  // written. After initialize, else Error. `seed` (that of initialize, else Error) and `step` key stochastic rounding.
  // Throws Error(kNonFinite) that names the parameter when the master or a learned part holds NaN or Inf (on a device
  // other than the CPU: when the errors are polled, kernels/flag.h). Nothing to do for a float parameter or one without
  // a master. A bf16 master is widened to fp32 in blocks of rows where scales are row-local or do not depend on the
  // numbers, else as a whole, in workspace memory.
  void requantize(uint64_t seed, int64_t step);
  // The same in blocks of whole rows, from values at hand: begin_requantize (with a master) or begin_masterless_codes
  // (without one: stochastic rounding by `draws`, element = row-major index in the parameter; kind sign: by the sign),
  // then put_rows once for every row, then end_codes. put_rows may be called from several threads and in any order, for
  // blocks that begin at multiples of row_unit(). It overwrites the codes of its rows; value() has the old scales until
  // end_codes. x [rows, cols] are the fp32 values of rows begin, begin + 1 ...
  // Only where scales_are_row_local(), else x must hold all rows. put_rows throws Error(kNonFinite) that names the
  // parameter when x holds NaN or Inf; the codes are then of no use.
  void begin_requantize(uint64_t seed, int64_t step);
  void begin_masterless_codes(const RandomStream& draws);
  void put_rows(int64_t begin, const Tensor& x);
  void end_codes();
  // Why the codes of all rows cannot be made by a kernel of a device that moves the numbers in the same sweep
  // (kernels/update_rows.h); empty: they can, where scales_are_row_local().
  std::string not_swept() const;
  // In place of put_rows, where not_swept() is empty: what that kernel writes, until end_codes. Layouts transposed and
  // frag64 are among it. Errors as those of put_rows, when the errors are polled.
  kernels::RowCodes sweep_codes();
  // Between put_rows and end_codes: layouts that are packed by rows (dtype/layout.h) get rows [begin, end) while their
  // codes are in cache; begin is a multiple of 16. Either for all rows or for none: then end_codes packs them. On a
  // device other than the CPU end_codes packs them in any case.
  void pack_rows(int64_t begin, int64_t end);
  // Whether scales are row-local, or do not depend on the numbers: channel(0), token, groups along a row; constant
  // scales; learned ones.
  bool scales_are_row_local() const;
  // Rows that share scales in groups along axis 0; 1 otherwise.
  int64_t row_unit() const;
  // Straight-through rule tanh: sharpness for this progress of the run, 0 to 1.
  void set_progress(double progress);
  // A further layout of the value that the chosen kernels read; written now and by every requantize.
  void add_layout(Layout layout);
  // While on, new scales are written in place of the old ones, so that recorded work of a device finds them there; else
  // they get memory of their own, and tensors that hold the old codes keep the old scales.
  void keep_params_in_place(bool on) { params_stay_ = on; }
  // A recorded backward added to the gradient again.
  void mark_grad() { sink_.done(); }
  // The gradient is zeros: on a rank whose microbatches did not reach this parameter.
  void make_zero_grad();
  // The value in its canonical layout alone, until others are asked for.
  void forget_layouts();
  // Sums in bf16 are rounded stochastically when on (drawn by path and microbatch).
  void set_gradient_rounding(bool stochastic, uint64_t seed, int64_t microbatch);

  // A window's only gradient may go there in blocks of rows instead of grad() (tape.h, GradRows); nullptr: never.
  void set_gradient_rows(GradRows* rows) { sink_.set_rows(rows); }
  // What set_gradient_rounding chose: nullptr for nearest even.
  const RandomStream* gradient_rounding() const { return sink_.rounding(); }

  // The numbers of now, fp32 [shape]: the master widened, or without one the values of the codes. Shares the bytes of a
  // master in fp32.
  Tensor dequantized() const;
  // Other numbers, fp32 [shape]: they become the master, or without one the values that the codes are made of; learned
  // parts take first values, and codes are made anew with the draws of (seed of initialize, step), scales too while
  // frozen. Layouts stay. After initialize.
  void assign(const Tensor& x, int64_t step);
  // Changes how the value is held, from now on; none: fp32, its own master. Numbers stay: fp32 ones become the master
  // of this kind, and codes are made of it with the draws of (seed of initialize, step); back in fp32 the value is the
  // master widened, or without a master the values of the codes. Learned parts are made anew. A spec and kind that are
  // equal to those before change nothing. Layouts are forgotten, and the gradient. Before initialize it changes the
  // spec alone. Throws Error when the quantizer refuses the spec, before anything changes.
  void set_quant(const std::optional<QuantSpec>& quant, MasterKind master, int64_t step);
  // dtype of the gradient (fp32 or bf16), clamp of masters: what is summed so far is forgotten.
  void set_training(DType grad, std::optional<float> latent_clamp, float learned_lr_factor,
                    std::optional<float> learned_weight_decay);
  // While on, scales stay as they are: requantize makes codes of the master with those of the value, and learned parts
  // do not train.
  void freeze_scales(bool on);
  bool scales_frozen() const { return scales_frozen_; }
  // The value alone, for good: no master, no learned parts, no gradient.
  void convert();
  bool converted() const { return converted_; }
  // No gradient and no update while on: a float parameter; or a low-bit one before initialize, which then never gets a
  // master.
  void set_frozen(bool on);

  // Resume: codes and scales byte for byte as they were (they come from the masters of the last requantization).
  // `master` is undefined for a parameter without one.
  void restore(const Tensor& master, const Tensor& value);

 private:
  struct Requantization;  // between begin_requantize or begin_masterless_codes and end_codes
  using Numbers = std::function<void(int64_t begin, const Tensor& x)>;  // x gets the rows from `begin` on

  Var leaf(const Tensor& value);
  void require_ready(std::string_view where) const;
  // Those that are planned, but for the ones that `written` says are.
  void write_layouts(const std::function<bool(Layout)>& written = nullptr);
  void allocate();
  void requantize_from(const Numbers& numbers, int64_t step);
  void make_learned(const Tensor& x);
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
  Tensor values_;  // fp32 [shape]; undefined until read_values
  std::vector<std::unique_ptr<Parameter>> learned_;
  std::vector<Layout> planned_;
  std::shared_ptr<Requantization> next_;
  bool ready_ = false;  // initialize, assign or restore gave it numbers
  bool scales_frozen_ = false, converted_ = false, params_stay_ = false;
  AccumulateSink sink_;
  RandomStream gradient_draws_;
};

}  // namespace bitgrad
