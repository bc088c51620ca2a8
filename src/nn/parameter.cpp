#include "bitgrad/nn/parameter.h"

#include <algorithm>
#include <cmath>

#include "nn/learned_parts.h"
#include "nn/parameter_spec.h"
#include "tensor/narrow.h"

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
  require(spec.matrices >= 0, "Parameter", "matrices must be at least 0, got ", spec.matrices);
  require(!spec.latent_clamp || *spec.latent_clamp >= 0, "Parameter", "latent_clamp must be at least 0, got ",
          spec.latent_clamp.value_or(0));
  require(!spec.floor || std::isfinite(*spec.floor), "Parameter", "floor must be finite, got ", spec.floor.value_or(0));
  require(spec.quant || spec.master == MasterKind::kFp32, "Parameter",
          "a parameter of dtype fp32 is its own master: got master ", enum_name(spec.master),
          ". Give it a low-bit dtype, or leave master at fp32");
  if (spec.quant) find_quantizer(spec.quant->scheme).check(*spec.quant, /*weight=*/true);
}

Parameter::Parameter(const Shape& shape, ParameterSpec spec, std::string name)
    : path_(std::move(name)), spec_(std::move(spec)) {
  detail::check_parameter_spec(spec_);
  if (shape != Shape()) describe(shape);
}

void Parameter::describe(const Shape& shape, const Shape& logical, Fans fans) {
  const Shape& shown = logical == Shape() ? shape : logical;
  require(shape.numel() == shown.numel(), "Parameter", "'", path_, "' of shape ", shape, " has the logical shape ",
          shown, ": expected the same number of elements");
  if (!shape_) {
    shape_ = shape;
    logical_shape_ = shown;
    fans_ = fans;
  }
  require(*shape_ == shape && logical_shape_ == shown && fans_ == fans, "Parameter", "'", path_, "' has the shape ",
          logical_shape_, ", got ", shown);
}

const Shape& Parameter::shape() const {
  require(described(), "Parameter", "'", path_,
          "' has no shape yet: its layer infers it from the form of its input. Call plan of the model first.");
  return *shape_;
}

std::span<const std::unique_ptr<Parameter>> Parameter::learned() const {
  return learned_ ? learned_->parts() : std::span<const std::unique_ptr<Parameter>>();
}

// Allocates zeros in the precision of the spec.
void Parameter::allocate() {
  master_ = dequantized_ = Tensor();
  learned_ = nullptr;
  memory_.value_ =
      Tensor::zeros(shape(), spec_.dtype(), low_bit() || read_only_ ? MemoryKind::kValue : MemoryKind::kMaster);
  if (!low_bit()) return;
  if (spec_.master != MasterKind::kNone && trains())
    master_ =
        Tensor::zeros(shape(), spec_.master == MasterKind::kBf16 ? dtypes::bf16 : dtypes::fp32, MemoryKind::kMaster);
  make_learned();
}

void Parameter::make_learned() {
  if (low_bit() && !find_quantizer(spec_.quant->scheme).learned(*spec_.quant).empty())
    learned_ = std::make_shared<detail::LearnedParts>(*this);
}

void Parameter::require_values(std::string_view where) const {
  if (ready_) return;
  if (read_only_)
    fail(
        where, "parameter '", path_, "' (", *shape_, ' ', spec_.dtype(),
        ") is unset: its model was made for the values of a file, and no file has set it. Load a checkpoint or a model "
        "file that has it");
  fail(where, "parameter '", path_, "' (", described() ? concat(*shape_, ' ', spec_.dtype()) : concat(spec_.dtype()),
       ") has no values yet: initialize was not called. Call initialize of the model, or of the parameter, first.");
}

Var Parameter::leaf(const Tensor& value) {
  require_values("Parameter::read");
  Tape* tape = Tape::current();
  return tape && trains() ? tape->leaf(value, &sink_, spec_.grad) : Var(value);
}

Var Parameter::read(ReadAs as) {
  if (as == ReadAs::kCodes || !low_bit()) return leaf(value());
  if (!dequantized_.defined() && value().quant()) dequantized_ = dequantize_tensor(value(), MemoryKind::kDerived);
  return leaf(dequantized_);
}

void Parameter::initialize(const std::string& path, uint64_t seed) {
  path_ = path;
  seed_ = seed;
  if (!value().defined()) allocate();
  requantize_from(
      [&](int64_t begin, const Tensor& x) {
        initialize_part(spec_.init, seed_, path_, shape(), begin * shape().cols(), x, fans_);
      },
      0);
}

void Parameter::leave_unset(const std::string& path, uint64_t seed) {
  ensure(!ready_, "Parameter", "'", path_, "' has values and cannot be left unset");
  path_ = path;
  seed_ = seed;
  read_only_ = memory_.one_layout_ = true;
  unset_on_ = current_device();
}

// The first values of a read-only parameter.
void Parameter::adopt(const ParameterState& state) {
  const Tensor& x = low_bit() ? state.value : state.master;
  require(!low_bit() || !state.master.defined(), "restore", "parameter '", path_, "' is read only and has no master, ",
          "got ", state.master);
  const bool narrow = !low_bit() && detail::is_narrow(x.dtype());
  require(x.defined() && x.shape() == shape() && (x.dtype() == spec_.dtype() || narrow), "restore", "parameter '",
          path_, "' is ", shape(), ' ', spec_.dtype(), ", got ", x);
  require(!low_bit() || x.quant() != nullptr, "restore", "the codes of '", path_, "' have no quantization parameters");
  const DeviceGuard own(device());
  const Tensor values = narrow ? detail::widened_on_demand(x.on_host()) : x.reshape(shape());
  const bool here = values.device() == current_device();
  memory_.value_ = here ? values : values.to_device(current_device(), MemoryKind::kValue);
  ready_ = true;
  memory_.write_layouts();
}

void Parameter::restore(const ParameterState& state) {
  if (read_only_ && !value().defined()) return adopt(state);
  if (!value().defined()) allocate();
  const DeviceGuard own(device());
  const auto& [master, value] = state;
  const Tensor& now = memory_.value_;
  if (has_master())
    require(master.defined() && master.shape() == shape() && master.dtype() == this->master().dtype(), "restore",
            "the master of '", path_, "' is ", this->master(), ", got ", master);
  else
    require(!master.defined(), "restore", "parameter '", path_, "' has no master, got ", master);
  if (low_bit()) {
    require(value.shape() == shape() && value.dtype() == now.dtype(), "restore", "parameter '", path_, "' is ", now,
            ", got ", value);
    require(value.quant() != nullptr, "restore", "the codes of '", path_, "' have no quantization parameters");
  }
  if (has_master()) this->master().copy_from(master);
  ready_ = true;
  if (!low_bit()) return;
  now.copy_from(value);
  memory_.value_.attach_row_sums({});
  const bool moves = value.device() != now.device();
  memory_.value_ =
      now.with_quant(moves ? value.to_device(now.device(), MemoryKind::kWorkspace).quant() : value.quant());
  if (dequantized_.defined()) dequantized_.copy_from(dequantize_tensor(now, MemoryKind::kWorkspace));
  memory_.write_layouts();  // last: codes that are only read leave their canonical order
}

}  // namespace bitgrad
