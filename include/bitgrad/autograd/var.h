// Var: a tensor with a place on a tape, and the dtype of the gradient on its edge.
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
  // True if on a tape: ops that read it are recorded. Such an op throws Error if the tape no longer exists or has run
  // backward; detach() removes the Var from the tape.
  bool tracked() const { return tape_ != nullptr; }
  Tape* tape() const { return tape_; }
  // Index of the edge on its tape; meaningful only if tracked.
  int64_t edge() const { return edge_; }
  // Dtype of the gradient on this edge: fp32 unless changed by want_grad (fp64 for an fp64 value).
  DType grad_dtype() const;
  // Requests gradients of this edge in `dtype` (fp32 or bf16; fp64 for an fp64 value). Call before an op reads it.
  Var& want_grad(DType dtype);
  // Whether an op has read this Var, which fixes that dtype. False if not tracked or if the tape no longer exists.
  bool was_read() const;
  // The same value, off the tape.
  Var detach() const { return Var(value_); }

 private:
  friend class Tape;
  Var(Tensor value, Tape* tape, uint64_t tape_id, int64_t edge)
      : value_(std::move(value)), tape_(tape), tape_id_(tape_id), edge_(edge) {}
  Tensor value_;
  Tape* tape_ = nullptr;
  uint64_t tape_id_ = 0;  // a later tape may have the same address
  int64_t edge_ = -1;
};

}  // namespace bitgrad
