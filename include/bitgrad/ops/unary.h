// Pointwise functions as ops. A header of its own: a new function, or another formula, recompiles only what uses one.
#pragma once

#include "bitgrad/autograd/op.h"
#include "bitgrad/kernels/unary_op.h"

namespace bitgrad {

// Pointwise functions of unary.inc: relu, hardtanh, tanh, sigmoid, silu, gelu (with erf), gelu_tanh. x fp32, bf16
// (computed in fp32, rounded once) or fp64; y in its dtype.
Var unary(UnaryOp op, const Var& x);
#define BITGRAD_UNARY(name, value, derivative) \
  inline Var name(const Var& x) { return unary(UnaryOp::name, x); }
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY

// y = f(gate) * up (Shazeer 2020, arXiv 2002.05202; silu: SwiGLU). x [.., 2d]: gate is x[.., 0 .. d-1], up the rest;
// y [.., d]; fp32, bf16 (computed in fp32, rounded once) or fp64. In fp32 the bits equal those of
// mul(unary(f, gate), up), but f(gate) is not kept for backward.
Var gated(UnaryOp f, const Var& x);

}  // namespace bitgrad
