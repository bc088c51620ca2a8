#include "bitgrad/nn/parameter.h"

#include "bitgrad/kernels/pack.h"

namespace bitgrad {

Parameter::Parameter(Shape shape, ParameterSpec spec) : shape_(std::move(shape)), spec_(std::move(spec)) {
  require(spec_.grad == dtypes::fp32 || spec_.grad == dtypes::bf16, "Parameter", "gradients can be fp32 or bf16, got ",
          spec_.grad);
  if (!low_bit()) {
    value_ = Tensor::zeros(shape_, dtypes::fp32, MemoryKind::kMaster);
    return;
  }
  quantizer_ = &find_quantizer(spec_.quant->scheme);
  quantizer_->check(*spec_.quant, /*weight=*/true);
  master_ = Tensor::zeros(shape_, dtypes::fp32, MemoryKind::kMaster);
  value_ = Tensor::zeros(shape_, spec_.quant->dtype, MemoryKind::kValue);
}

Var Parameter::read() {
  require(!low_bit() || value_.quant(), "Parameter", "the value of ", value_,
          " was never made from its master. Call initialize first.");
  Tape* tape = Tape::current();
  return tape ? tape->leaf(value_, &sink_, spec_.grad) : Var(value_);
}

void Parameter::initialize(const std::string& path, uint64_t seed) {
  path_ = path;
  bitgrad::initialize(spec_.init, seed, path_, master());
  requantize(seed, 0);
}

void Parameter::requantize(uint64_t seed, int64_t step) {
  if (!low_bit()) return;
  const RandomStream draws{seed, Purpose::kRequantize, site_id(path_), static_cast<uint32_t>(step)};
  QuantizeOptions options;
  options.sr = &draws;
  options.kind = MemoryKind::kValue;
  options.into = &value_;
  try {
    const auto params = std::make_shared<const QuantParams>(quantizer_->fit(*spec_.quant, master_));
    value_ = quantize_tensor(*spec_.quant, master_, params, options).with_quant(params);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNonFinite) throw;
    fail_with(ErrorCode::kNonFinite, "requantize", "the master of '", path_, "' (", master_,
              ") holds NaN or Inf at optimizer step ", step);
  }
  write_layouts();
}

void Parameter::add_layout(Layout layout) {
  if (layout == layouts::canonical || !low_bit()) return;
  for (const Layout l : planned_)
    if (l == layout) return;
  planned_.push_back(layout);
  write_layouts();
}

void Parameter::write_layouts() {
  for (const Layout layout : planned_) {
    Tensor derived = value_.in_layout(layout);
    if (!derived.defined()) derived = Tensor::empty_layout(shape_, value_.dtype(), layout, MemoryKind::kDerived);
    pack({value_.dtype(), value_.rows(), value_.cols(), value_.data(), value_.stride(), layout, derived.data()});
    value_.attach_layout(derived);
  }
}

void Parameter::set_gradient_rounding(bool stochastic, uint64_t seed, int64_t microbatch) {
  gradient_draws_ = {seed, Purpose::kGradAccumulate, site_id(path_), static_cast<uint32_t>(microbatch)};
  sink_.set_rounding(stochastic ? &gradient_draws_ : nullptr);
}

void Parameter::restore(const Tensor& master, const Tensor& value) {
  require(master.shape() == shape_ && master.dtype() == dtypes::fp32, "restore", "the master of '", path_, "' is ",
          this->master(), ", got ", master);
  if (low_bit()) {
    require(value.shape() == shape_ && value.dtype() == value_.dtype(), "restore", "parameter '", path_, "' is ",
            value_, ", got ", value);
    require(value.quant() != nullptr, "restore", "the codes of '", path_,
            "' come without their quantization parameters");
  }
  this->master().copy_from(master);
  if (!low_bit()) return;
  value_.copy_from(value);
  value_ = value_.with_quant(value.quant());
  write_layouts();
}

}  // namespace bitgrad
