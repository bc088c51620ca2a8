// New values and settings of a parameter: from its master, from tensors, in another precision. docs/numerics.md
// section 9.
#include <algorithm>
#include <utility>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/nn/requantization.h"
#include "kernels/elementwise.h"
#include "nn/learned_parts.h"
#include "nn/parameter_spec.h"
#include "nn/row_params.h"
#include "quant/values.h"

namespace bitgrad {

using detail::as_matrix;

namespace {

constexpr int64_t kMasterBlock = 32768;  // elements of a bf16 master filled at a time, at least one row

// Fills with the rows of a tensor.
auto rows_from(const Tensor& from) {
  return [from](int64_t begin, const Tensor& x) { x.copy_from(as_matrix(from).row_slice(begin, begin + x.rows())); };
}

}  // namespace

bool detail::same_quant(const std::optional<QuantSpec>& a, const std::optional<QuantSpec>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  QuantSpec now = *a;
  now.ste_t = b->ste_t;
  return now == *b;
}

Tensor dequantized(const Parameter& p) {
  return p.has_master() ? widened(p.master()) : dequantize_tensor(p.value(), MemoryKind::kWorkspace);
}

std::shared_ptr<const QuantParams> Parameter::given_params(int64_t step) const {
  if (detail::scales_given(*this)) return value().quant();
  return learned_ ? learned_->params(step) : nullptr;
}

void Parameter::requantize(uint64_t seed, int64_t step) {
  if (!low_bit()) return;
  require_values("requantize");
  if (!master_.defined()) return;
  const DeviceGuard own(device());
  if (learned_) learned_->refit(step);
  Requantization codes(*this, seed, step);
  if (master_.dtype() == dtypes::fp32) return codes.put_all(nullptr);
  codes.put_all([&](int64_t begin, const Tensor& x) {
    kernels::from_bf16(x.numel(), master_.as<uint16_t>() + begin * shape_->cols(), x.as<float>());
  });
}

void Parameter::fill_master(const Rows& rows) const {
  const bool wide = master_.dtype() == dtypes::fp32;
  const int64_t all = shape_->rows(),
                block = wide || !master_.device().is_cpu()
                            ? std::max<int64_t>(all, 1)
                            : std::max(kMasterBlock / std::max<int64_t>(shape_->cols(), 1), int64_t{1});
  for (int64_t begin = 0; begin < all; begin += block) {
    const Tensor part = as_matrix(master_).row_slice(begin, std::min(begin + block, all));
    const Tensor x = wide ? part : Tensor::empty(part.shape(), dtypes::fp32, MemoryKind::kWorkspace);
    rows(begin, x);
    if (!wide) kernels::to_bf16(x.numel(), x.as<float>(), part.as<uint16_t>());
  }
}

// Sets the value from fp32 values of all rows: in place if the parameter is fp32, otherwise as master, learned parts
// and codes, which are drawn for `step`.
void Parameter::requantize_from(const Rows& rows, int64_t step) {
  ready_ = true;
  if (!low_bit()) return rows(0, as_matrix(value()));
  if (has_master()) fill_master(rows);
  if (learned_) {
    Tensor x = has_master() ? widened(master_) : Tensor::empty(shape(), dtypes::fp32, MemoryKind::kWorkspace);
    if (!has_master()) rows(0, as_matrix(x));
    learned_->initialize(x);
  }
  if (has_master()) return requantize(seed_, step);
  Requantization codes(*this, *spec_.quant, {seed_, Purpose::kRequantize, site_id(path_), static_cast<uint32_t>(step)},
                       learned_ ? learned_->params(step) : nullptr);
  codes.put_all(rows);
}

void Parameter::assign(const Tensor& x, int64_t step) {
  require(x.shape() == shape() && x.dtype() == dtypes::fp32 && !spec_.converted, "assign", "parameter '", path_,
          "' is ", value(), spec_.converted ? ", converted" : "", ": got ", x);
  struct Unfrozen {
    bool& now;
    const bool before = std::exchange(now, false);
    ~Unfrozen() { now = before; }
  } const unfrozen{spec_.scales_frozen};
  const DeviceGuard own(device());
  if (read_only_ && !value().defined()) allocate();
  if (read_only_ && !learned_) make_learned();
  requantize_from(rows_from(x), step);
}

void Parameter::change(const std::function<void(ParameterSpec&)>& edit, int64_t step) {
  const DeviceGuard own(device());
  ParameterSpec to = spec_;
  edit(to);
  const bool precision = !detail::same_quant(to.quant, spec_.quant) || to.master != spec_.master,
             converts = to.converted && !spec_.converted, grad = to.grad != spec_.grad,
             training = grad || to.latent_clamp != spec_.latent_clamp || to.learned != spec_.learned;
  require(!precision || !spec_.converted, "Parameter", "'", path_, "' ", value(),
          " is converted: it has no master to requantize");
  require(to.frozen == spec_.frozen || !low_bit() || !value().defined(), "Parameter", "'", path_, "' ", value(),
          " is low-bit: freeze it before it is initialized, or convert it");
  if (precision || training) detail::check_parameter_spec(to);
  to.frozen = to.frozen || converts;
  if (grad || converts)
    sink_ = AccumulateSink();
  else if (training || precision || to.frozen != spec_.frozen)
    sink_.clear();
  if (precision) set_precision(to, step);
  spec_ = std::move(to);
  if (converts && low_bit()) {
    master_ = dequantized_ = Tensor();
    learned_ = nullptr;
  }
  if (learned_) learned_->follow_spec();
}

// Scales stay as frozen as they were while new codes are made, of values that are kept.
void Parameter::set_precision(ParameterSpec to, int64_t step) {
  const Tensor from = ready_ ? dequantized(*this) : Tensor();
  to.scales_frozen = spec_.scales_frozen;
  spec_ = std::move(to);
  if (!value().defined()) return;
  memory_.forget_layouts();
  allocate();
  if (ready_) requantize_from(rows_from(from), step);
}

}  // namespace bitgrad
