#include "bitgrad/nn/parameter.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/step_scalars.h"
#include "kernels/elementwise.h"
#include "kernels/flag.h"
#include "kernels/pack.h"
#include "nn/parameter_spec.h"
#include "nn/step_signal.h"

namespace bitgrad {
void detail::check_parameter_spec(const ParameterSpec& spec) {
  require(spec.grad == dtypes::fp32 || spec.grad == dtypes::bf16, "Parameter", "gradients can be fp32 or bf16, got ",
          spec.grad);
  for (const auto& [what, value] :
       {std::pair{"lr_factor", spec.lr_factor}, {"learned_lr_factor", spec.learned.lr_factor}})
    require(std::isfinite(value) && value >= 0, "Parameter", what, " must be at least 0, got ", value);
  for (const auto& [what, value] :
       {std::pair{"weight_decay", spec.weight_decay}, {"learned_weight_decay", spec.learned.weight_decay}})
    require(!value || (std::isfinite(*value) && *value >= 0), "Parameter", what, " must be at least 0, got ",
            value.value_or(0));
  require(!spec.latent_clamp || *spec.latent_clamp >= 0, "Parameter", "latent_clamp must be at least 0, got ",
          spec.latent_clamp.value_or(0));
  require(!spec.floor || std::isfinite(*spec.floor), "Parameter", "floor must be finite, got ", spec.floor.value_or(0));
  require(spec.quant || spec.master == MasterKind::kFp32, "Parameter",
          "a parameter of dtype fp32 is its own master: got master ", enum_name(spec.master),
          ". Give it a low-bit dtype, or leave master at fp32");
  if (spec.quant) find_quantizer(spec.quant->scheme).check(*spec.quant, /*weight=*/true);
}

Parameter::Parameter(ParameterSpec spec, std::string name) : path_(std::move(name)), spec_(std::move(spec)) {
  detail::check_parameter_spec(spec_);
}

Parameter::Parameter(Shape shape, ParameterSpec spec, std::string name) : Parameter(std::move(spec), std::move(name)) {
  describe(shape);
}

void Parameter::describe(const Shape& shape, const Shape& logical, Fans fans) {
  require(shape.numel() == logical.numel(), "Parameter", "'", path_, "' of shape ", shape, " has the logical shape ",
          logical, ": expected the same number of elements");
  if (!shape_) {
    shape_ = shape;
    logical_shape_ = logical;
    fans_ = fans;
  }
  require(*shape_ == shape && logical_shape_ == logical && fans_ == fans, "Parameter", "'", path_, "' has the shape ",
          logical_shape_, ", got ", logical);
}

const Shape& Parameter::shape() const {
  require(described(), "Parameter", "'", path_,
          "' has no shape yet: its layer infers it from the form of its input. Call plan of the model first.");
  return *shape_;
}

// Allocates zeros in the precision of the spec.
void Parameter::allocate() {
  master_ = dequantized_ = Tensor();
  learned_.clear();
  quantizer_ = nullptr;
  if (!low_bit()) {
    value_ = Tensor::zeros(shape(), dtypes::fp32, MemoryKind::kMaster);
    return;
  }
  const QuantSpec& quant = *spec_.quant;
  quantizer_ = &find_quantizer(quant.scheme);
  if (spec_.master != MasterKind::kNone && !spec_.frozen)
    master_ =
        Tensor::zeros(shape(), spec_.master == MasterKind::kBf16 ? dtypes::bf16 : dtypes::fp32, MemoryKind::kMaster);
  value_ = Tensor::zeros(shape(), quant.dtype, MemoryKind::kValue);
  for (const LearnedPart& part : quantizer_->learned(quant)) {
    ParameterSpec learned;
    learned.init = {"zeros"};  // until the scheme computes initial values
    learned.moments = MomentKind::kFp32;
    learned.optimizer = spec_.optimizer;
    learned.lr_factor = spec_.learned.lr_factor;
    learned.weight_decay = spec_.learned.weight_decay;
    learned.floor = part.floor;
    learned.frozen = spec_.frozen || scales_frozen_;
    const int64_t blocks = scale_count(quant.granularity, shape().rows(), shape().cols());
    learned_.push_back(std::make_unique<Parameter>(Shape{blocks}, std::move(learned)));
  }
}

void Parameter::require_ready(std::string_view where) const {
  if (ready_) return;
  fail(where, "parameter '", path_, "' (", described() ? concat(*shape_, ' ', dtype()) : concat(dtype()),
       ") has no values yet: initialize was not called. Call initialize of the model, or of the parameter, first.");
}

Var Parameter::leaf(const Tensor& value) {
  require_ready("Parameter::read");
  Tape* tape = Tape::current();
  return tape && !spec_.frozen ? tape->leaf(value, &sink_, spec_.grad) : Var(value);
}

Var Parameter::read() { return leaf(value_); }

Var Parameter::read_values() {
  if (!low_bit()) return read();
  if (!dequantized_.defined() && value_.quant()) dequantized_ = dequantize_tensor(value_, MemoryKind::kDerived);
  return leaf(dequantized_);
}

void Parameter::initialize(const std::string& path, uint64_t seed) {
  path_ = path;
  seed_ = seed;
  if (!allocated()) allocate();
  requantize_from(
      [&](int64_t begin, const Tensor& x) {
        initialize_part(spec_.init, seed_, path_, shape(), begin * shape().cols(), x, fans_);
      },
      0);
}

void Parameter::make_learned(const Tensor& x) {
  if (learned_.empty()) return;
  const std::vector<LearnedPart> parts = quantizer_->learned(*spec_.quant);
  const std::vector<Tensor> first = quantizer_->first_learned(*spec_.quant, x);
  ensure(first.size() == parts.size() && parts.size() == learned_.size(), "Parameter", "scheme ", spec_.quant->scheme,
         " has ", parts.size(), " learned parts, and first values for ", first.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    Parameter& learned = *learned_[i];
    learned.initialize(concat(path_, '.', parts[i].name), seed_);
    learned.value_.copy_from(first[i].reshape(learned.shape()));
    if (const auto& floor = learned.spec_.floor)
      kernels::clamp(learned.value_.numel(), *floor, INFINITY, learned.value_.as<float>());
  }
}

void Parameter::refit_learned(int64_t step) {
  if (learned_.empty() || spec_.frozen || scales_frozen_ || !learned_[0]->spec_.floor) return;
  std::vector<Tensor> parts;
  for (const auto& p : learned_) parts.push_back(p->value_);
  detail::refit_steps(*spec_.quant, parts, *learned_[0]->spec_.floor, master_, step, {path_, "weights", told_refit_});
}

// Clones the learned parts: codes keep the scales they were made with while the parts train on. nullptr if nothing is
// learned.
std::shared_ptr<const QuantParams> Parameter::learned_params(int64_t step) const {
  if (learned_.empty()) return nullptr;
  std::vector<Tensor> parts;
  for (const auto& p : learned_) parts.push_back(p->value().clone(MemoryKind::kQuantState));
  const auto names_parameter = [path = path_, step](const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (error == nullptr || error->code() != ErrorCode::kNonFinite) return;
    fail_with(ErrorCode::kNonFinite, "requantize", "learned parts of '", path, "' at optimizer step ", step, ": ",
              e.what());
  };
  const ErrorContext scope(names_parameter);
  try {
    return std::make_shared<const QuantParams>(quantizer_->params_of(*spec_.quant, parts));
  } catch (const Error& e) {
    names_parameter(e);
    throw;
  }
}

std::shared_ptr<const QuantParams> Parameter::given_params(int64_t step) const {
  return scales_given() ? value_.quant() : learned_params(step);
}

void Parameter::set_progress(double progress) {
  if (low_bit() && ste_rule(*spec_.quant) == SteRule::kTanh) spec_.quant->ste_t = annealed_t(*spec_.quant, progress);
}

void Parameter::add_layout(Layout layout) {
  if (layout == layouts::canonical || !low_bit()) return;
  for (const Layout l : planned_)
    if (l == layout) return;
  planned_.push_back(layout);
  if (allocated()) write_layouts();
}

void Parameter::forget_layouts() {
  planned_.clear();
  if (allocated()) value_ = value_.reshape(shape());
}

void Parameter::write_layouts(const std::function<bool(Layout)>& written) {
  for (const Layout layout : planned_) {
    if (written && written(layout)) continue;
    Tensor derived = value_.in_layout(layout);
    if (!derived.defined()) derived = Tensor::empty_layout(shape(), value_.dtype(), layout, MemoryKind::kDerived);
    kernels::pack(
        {value_.dtype(), value_.rows(), value_.cols(), value_.data(), value_.stride(), layout, derived.data()});
    value_.attach_layout(derived);
  }
}

void Parameter::set_gradient_rounding(bool stochastic, uint64_t seed, int64_t microbatch) {
  gradient_draws_ =
      live_by_microbatch({seed, Purpose::kGradAccumulate, site_id(path_), static_cast<uint32_t>(microbatch)});
  sink_.set_rounding(stochastic ? &gradient_draws_ : nullptr);
}

void Parameter::restore(const Tensor& master, const Tensor& value) {
  if (!allocated()) allocate();
  if (has_master())
    require(master.defined() && master.shape() == shape() && master.dtype() == this->master().dtype(), "restore",
            "the master of '", path_, "' is ", this->master(), ", got ", master);
  else
    require(!master.defined(), "restore", "parameter '", path_, "' has no master, got ", master);
  if (low_bit()) {
    require(value.shape() == shape() && value.dtype() == value_.dtype(), "restore", "parameter '", path_, "' is ",
            value_, ", got ", value);
    require(value.quant() != nullptr, "restore", "the codes of '", path_, "' have no quantization parameters");
  }
  if (has_master()) this->master().copy_from(master);
  ready_ = true;
  if (!low_bit()) return;
  value_.copy_from(value);
  value_.attach_row_sums({});
  const bool moves = value.device() != value_.device();
  value_ = value_.with_quant(moves ? value.to_device(value_.device(), MemoryKind::kWorkspace).quant() : value.quant());
  write_layouts();
  if (dequantized_.defined()) dequantized_.copy_from(dequantize_tensor(value_, MemoryKind::kWorkspace));
}

void Parameter::make_zero_grad() {
  const GradTarget target = sink_.target(shape(), grad_dtype());
  device_backend(target.out.device()).fill_zero(target.out.data(), target.out.bytes());
  sink_.done();
}

}  // namespace bitgrad
