// Var: a tensor with a place on a tape, and the dtype in which its edge wants gradients.
#pragma once

#include <utility>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

class Tape;

class Var {
 public:
  Var() = default;
  // A constant: no gradient flows to it.
  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT: an op takes tensors as they are

  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  bool defined() const { return value_.defined(); }
  // On a tape: an op that reads it is recorded. The tape must live and must not have run backward then, else the op
  // throws Error; detach() takes the value out of it.
  bool tracked() const { return tape_ != nullptr; }
  Tape* tape() const { return tape_; }
  // The edge's index on its tape; meaningful only when tracked.
  int64_t edge() const { return edge_; }
  // Dtype of the gradient on this edge: fp32 unless asked otherwise (fp64 for an fp64 value).
  DType grad_dtype() const;
  // Asks for gradients of this edge in `dtype` (fp32 or bf16; fp64 for an fp64 value). Call it before an op reads the
  // Var.
  Var& want_grad(DType dtype);
  // Whether an op has read this Var, which settles that dtype. False when it is not tracked or its tape is gone.
  bool was_read() const;
  // The same value off the tape.
  Var detach() const { return Var(value_); }

 private:
  friend class Tape;
  Var(Tensor value, Tape* tape, uint64_t tape_id, int64_t edge)
      : value_(std::move(value)), tape_(tape), tape_id_(tape_id), edge_(edge) {}
  Tensor value_;
  Tape* tape_ = nullptr;
  uint64_t tape_id_ = 0;  // a later tape may lie at the same address
  int64_t edge_ = -1;
};

}  // namespace bitgrad
