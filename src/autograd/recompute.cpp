#include "bitgrad/autograd/tape.h"

#include <utility>

namespace bitgrad {
namespace {

constexpr std::string_view kRecompute = "recompute";

// The block's k-th contribution to the gradient of its input goes to slot k: the outer tape records the input once per
// read.
class InputSink final : public GradSink {
 public:
  explicit InputSink(std::vector<GradSlot>& slots) : slots_(slots) {}
  GradTarget target(const Shape&, DType) override {
    require(next_ < slots_.size(), kRecompute, "the block read its input ", slots_.size(),
            " times, and more often when it ran again");
    return slots_[next_].target();
  }
  void done() override { slots_[next_++].commit(); }

 private:
  std::vector<GradSlot>& slots_;
  size_t next_ = 0;
};

class NoSink final : public GradSink {
 public:
  GradTarget target(const Shape&, DType) override { fail(kRecompute, "nothing runs backward here"); }
};

class RecomputeNode final : public Node {
 public:
  RecomputeNode(Tape& outer, Tensor x, const RecomputedBlock& run, const Tensor& y)
      : outer_(outer), x_(std::move(x)), run_(run), shape_(y.shape()), dtype_(y.dtype()) {}
  std::string_view name() const override { return kRecompute; }

  void backward(const std::vector<Tensor>& gy, std::vector<GradSlot>& gx) override {
    InputSink sink(gx);
    Tape inner;
    inner.set_outer(outer_);
    Var y = run_(gx.empty() ? Var(x_) : inner.leaf(x_, &sink, gx[0].dtype()), true);
    require(y.shape() == shape_ && y.dtype() == dtype_ && y.tape() == &inner, kRecompute, "the block gave ", shape_,
            ' ', dtype_, ", and ", y.value(), " when it ran again: expected the same, from leaves on the tape");
    x_ = Tensor();
    if (y.grad_dtype() != gy[0].dtype()) y.want_grad(gy[0].dtype());
    inner.backward({y}, {gy[0]});
  }

 private:
  Tape& outer_;
  Tensor x_;
  const RecomputedBlock run_;
  const Shape shape_;
  const DType dtype_;
};

}  // namespace

Var recompute(const Var& x, const RecomputedBlock& run) {
  require(x.defined(), kRecompute, "x is undefined.");
  Tape* const tape = Tape::current() == nullptr ? nullptr : x.tracked() ? x.tape() : Tape::current();
  if (tape == nullptr) return run(x, false);
  Var from = x;
  Var y;
  int64_t reads = 0;
  DType y_grad;
  {
    NoSink unused;
    Tape counts(Tape::Kind::kCounts);
    const Var in = x.tracked() ? counts.leaf(x.value(), &unused, x.grad_dtype()) : x;
    y = run(in, false);
    if (y.tape() != &counts) return y.detach();
    if (x.tracked() && y.edge() == in.edge()) return x;
    if (x.tracked() && in.grad_dtype() != from.grad_dtype()) from.want_grad(in.grad_dtype());
    y_grad = y.grad_dtype();
    Tape::Reads leaves = counts.reads();
    reads = leaves[&unused];
    leaves.erase(&unused);
    tape->add_reads(leaves);
  }
  auto node =
      std::make_unique<RecomputeNode>(*tape, tape->records() ? tape->saved(x.value()) : Tensor(), run, y.value());
  const std::vector<Var> inputs(static_cast<size_t>(reads), from);
  Var out = tape->record(std::move(node), inputs, {y.value()}).front();
  if (out.grad_dtype() != y_grad) out.want_grad(y_grad);
  return out;
}

}  // namespace bitgrad
