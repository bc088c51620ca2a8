// Destinations of gradients: the default sink of leaves, and the slots through which backward delivers gradients.
#include "autograd/map/gradients.h"
#include "bitgrad/autograd/tape.h"
#include "kernels/elementwise.h"

namespace bitgrad {
namespace {

// sum = sum + part, both fp32 (or both fp64) and dense.
void add_into(const Tensor& sum, const Tensor& part) {
  if (sum.dtype() == dtypes::fp64) {
    double* s = sum.as<double>();
    const double* p = part.as<double>();
    for (int64_t i = 0; i < sum.numel(); ++i) s[i] += p[i];
  } else {
    kernels::add(sum.numel(), sum.as<float>(), part.as<float>(), sum.as<float>());
  }
}

}  // namespace

namespace detail {

void deliver(const GradTarget& target, const Tensor& gradient) {
  if (!target.accumulate && target.out.dtype() == gradient.dtype()) {
    target.out.copy_from(gradient);
    return;
  }
  if (target.out.dtype() != dtypes::bf16) {
    if (gradient.dtype() == dtypes::bf16) {
      Tensor wide = Tensor::empty(gradient.shape(), dtypes::fp32);
      kernels::from_bf16(gradient.numel(), gradient.as<uint16_t>(), wide.as<float>());
      deliver(target, wide);
    } else {
      add_into(target.out, gradient);
    }
    return;
  }
  uint16_t* out = target.out.as<uint16_t>();
  if (!target.accumulate && target.sr == nullptr) {
    kernels::to_bf16(gradient.numel(), gradient.as<float>(), out);
    return;
  }
  const bool narrow = gradient.dtype() == dtypes::bf16;
  run_map(maps::DeliverBf16{out, narrow ? nullptr : gradient.as<float>(), narrow ? gradient.as<uint16_t>() : nullptr,
                            target.accumulate, target.sr != nullptr, target.sr ? *target.sr : RandomStream{}},
          gradient.numel());
}

}  // namespace detail

using detail::deliver;

GradTarget AccumulateSink::target(const Shape& shape, DType dtype) {
  if (!grad_.defined()) grad_ = Tensor::empty(shape, dtype, MemoryKind::kGrad);
  require(grad_.shape() == shape && grad_.dtype() == dtype, "AccumulateSink", "the gradient is ", shape, ' ', dtype,
          ", the sum so far is ", grad_);
  return {grad_, filled_, dtype == dtypes::bf16 ? rounding() : nullptr};
}

void GradSlot::check_open() const {
  require(wanted_, op_, "gradient ", index_, " is not needed: input ", index_, " is a constant. Check wanted() first.");
  require(!given_ && !pending_.out.defined() && pending_rows_ == nullptr, op_, "gradient ", index_,
          " was set already: one contribution per input. Add them up first.");
}

DType GradSlot::stored_dtype() const {
  require(wanted_, op_, "gradient ", index_, " is not needed: input ", index_, " is a constant. Check wanted() first.");
  const Tape::Edge& edge = tape_->edges_[static_cast<size_t>(edge_)];
  if (edge.sink == nullptr) return Tape::sum_dtype(edge);
  return edge.wide ? dtypes::fp64 : dtypes::fp32;
}

GradTarget GradSlot::target() {
  check_open();
  pending_ = tape_->edge_target(edge_);
  return pending_;
}

GradRows* GradSlot::rows() {
  check_open();
  pending_rows_ = tape_->edge_rows(edge_);
  if (pending_rows_ != nullptr) pending_rows_->begin();
  return pending_rows_;
}

int64_t GradSlot::block_rows() const {
  const GradRows* rows = wanted_ ? tape_->edge_rows(edge_) : nullptr;
  return rows != nullptr ? rows->block_rows() : 0;
}

void GradSlot::decline_rows(std::string_view why) const {
  check_open();
  if (GradRows* rows = tape_->edge_rows(edge_)) rows->declined(why);
}

void GradSlot::commit() {
  require(pending_.out.defined() || pending_rows_ != nullptr, op_, "commit of gradient ", index_,
          " without target() or rows()");
  given_ = true;
  if (pending_rows_ != nullptr) {
    pending_rows_->done();
    pending_rows_ = nullptr;
    return;
  }
  pending_ = {};
  Tape::Edge& edge = tape_->edges_[static_cast<size_t>(edge_)];
  if (edge.sink) edge.sink->done();
}

void GradSlot::set(const Tensor& gradient) {
  check_open();
  require(gradient.shape() == shape_ && gradient.dtype() == dtype_, op_, "gradient ", index_, " is ", gradient,
          ", expected ", shape_, ' ', dtype_);
  set_rounded(gradient);
}

void GradSlot::set_rounded(const Tensor& gradient) {
  check_open();
  require(gradient.shape() == shape_, op_, "gradient ", index_, " is ", gradient, ", expected ", shape_, ' ', dtype_);
  require(gradient.dtype() == dtype_ || (gradient.dtype() == dtypes::fp32 && dtype_ == dtypes::bf16), op_, "gradient ",
          index_, " is ", gradient, ", expected ", shape_, ' ', dtype_);
  Tape::Edge& edge = tape_->edges_[static_cast<size_t>(edge_)];
  // The common case, the first gradient of an inner edge: no copy. Tape::edge_target handles further contributions.
  if (edge.sink == nullptr && !edge.grad.defined() && gradient.dtype() == Tape::sum_dtype(edge) &&
      gradient.contiguous()) {
    edge.grad = gradient;
    given_ = true;
    return;
  }
  deliver(target(), gradient);
  commit();
}

}  // namespace bitgrad
