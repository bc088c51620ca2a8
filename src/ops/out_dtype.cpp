// out_dtype(op, d, a, b): products and sums of bare integers, computed exactly and written as d. docs/numerics.md
// section 4. Backward: the rule of the op applied to the values, in fp32 (each value rounded once to fp32):
//   matmul, y = a b:    ga = g b^T, gb = a^T g;    linear, y = a b^T:  ga = g b, gb = g^T a;
//   mul:  ga = g * b, gb = g * a;                  add:  ga = gb = g.
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/out_dtype_exact.h"
#include "ops/product/operand.h"

namespace bitgrad {
namespace {

constexpr std::string_view kOutDtype = "out_dtype";

struct Inputs {
  Tensor a, b;
};

// ---- rules per op: shape of the result, forward, backward

Shape matmul_shape(const Tensor& a, const Tensor& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.cols() == b.rows(), kOutDtype, "matmul: got a ", a,
          ", b ", b, ", expected [m,k] and [k,n]");
  return {a.rows(), b.cols()};
}
void matmul_forward(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  detail::exact_product(a, b, true, y, flag);
}

using detail::side_of;
void product(const detail::Side& a, const detail::Side& b, GradSlot& slot) {
  kernels::GemmArgs args = detail::product_args(a, b);
  gemm_into(args, slot);
}

void matmul_backward(const Inputs& s, const Tensor& g, std::span<GradSlot> slots) {
  if (slots[0].wanted()) product(side_of(g, false), side_of(s.b, false), slots[0]);
  if (slots[1].wanted()) product(side_of(s.a, true), side_of(g, true), slots[1]);
}

Shape linear_shape(const Tensor& a, const Tensor& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.cols() == b.cols(), kOutDtype, "linear: got a ", a,
          ", b ", b, ", expected [m,k] and [n,k]");
  return {a.rows(), b.rows()};
}
void linear_forward(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  detail::exact_product(a, b, false, y, flag);
}
void linear_backward(const Inputs& s, const Tensor& g, std::span<GradSlot> slots) {
  if (slots[0].wanted()) product(side_of(g, false), side_of(s.b, true), slots[0]);
  if (slots[1].wanted()) product(side_of(g, true), side_of(s.a, true), slots[1]);
}

Shape same_shape(const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape(), kOutDtype, "shapes differ: got a ", a, ", b ", b, ", expected equal shapes");
  return a.shape();
}

// g times the values of t, each rounded once.
Tensor times_numbers(const Tensor& gradient, const Tensor& t) {
  const Tensor g = wide(gradient);
  Tensor out = Tensor::empty(g.shape(), dtypes::fp32);
  const int64_t n = t.cols();
  if (!current_device().is_cpu()) {
    run_map(maps::TimesIntegers{detail::exact_source(t), n, g.as<float>(), out.as<float>()}, t.numel());
    return out;
  }
  parallel_ranges(t.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* line = out.as<float>() + r * n;
      unpack_row(t.dtype(), static_cast<const char*>(t.data()) + r * t.stride(), 0, n, line);
      kernels::mul(n, g.as<float>() + r * n, line, line);
    }
  });
  return out;
}
void mul_backward(const Inputs& s, const Tensor& g, std::span<GradSlot> slots) {
  if (slots[0].wanted()) slots[0].set_rounded(times_numbers(g, s.b));
  if (slots[1].wanted()) slots[1].set_rounded(times_numbers(g, s.a));
}
void add_backward(const Inputs&, const Tensor& g, std::span<GradSlot> slots) {
  const Tensor wide_g = wide(g);
  for (GradSlot& slot : slots)
    if (slot.wanted()) slot.set_rounded(wide_g);
}

struct Rule {
  IntegerOp op;
  bool keeps;  // backward reads the operands
  Shape (*shape)(const Tensor& a, const Tensor& b);
  void (*forward)(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag);
  void (*backward)(const Inputs& s, const Tensor& g, std::span<GradSlot> slots);
};
constexpr Rule kRules[] = {
    {IntegerOp::matmul, true, matmul_shape, matmul_forward, matmul_backward},
    {IntegerOp::linear, true, linear_shape, linear_forward, linear_backward},
    {IntegerOp::mul, true, same_shape, detail::exact_mul, mul_backward},
    {IntegerOp::add, false, same_shape, detail::exact_add, add_backward},
};
const Rule& rule_of(IntegerOp op) {
  for (const Rule& rule : kRules)
    if (rule.op == op) return rule;
  fail_with(ErrorCode::kBug, kOutDtype, "internal error: unknown op ", static_cast<int>(op));
}

void check_operand(std::string_view name, const Tensor& t) {
  require(is_integer(t.dtype()), kOutDtype, name, ": got ", t, ", expected an int, uint or sign dtype");
  require(!t.quant(), kOutDtype, name, ' ', t, " has scales (", t.quant() ? t.quant()->scheme : "",
          "): out_dtype computes on bare codes. Use `linear` for values, or Tensor::without_quant.");
  require(t.layout() == layouts::canonical, kOutDtype, name, ' ', t, " is in layout ", t.layout(),
          ", expected canonical");
}

struct OutDType {
  static constexpr std::string_view kName = "out_dtype";
  struct Saved {
    const Rule* rule = nullptr;
    Inputs in;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, IntegerOp op, DType dtype, uint32_t* flag) {
    s.rule = &rule_of(op);
    check_operand("a", in[0]);
    check_operand("b", in[1]);
    require(detail::exact_output(dtype), kOutDtype, "dtype of the result: got ", dtype,
            ", expected int32, int64, fp32, or an int or uint dtype of at most 8 bits");
    Tensor y = Tensor::empty(s.rule->shape(in[0], in[1]), dtype);
    s.rule->forward(in[0], in[1], y, flag);
    if (s.rule->keeps) s.in = {keep(in[0]), keep(in[1])};
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    s.rule->backward(s.in, gy[0], g);
  }
};

}  // namespace

Var out_dtype(IntegerOp op, DType dtype, const Var& a, const Var& b, uint32_t* flag) {
  return apply<OutDType>({a, b}, op, dtype, flag);
}

}  // namespace bitgrad
