#include "ops/common.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/kernels/gemm.h"
#include "kernels/elementwise.h"
#include "kernels/map/map.h"
#include "kernels/reduce.h"

namespace bitgrad {

Tensor wide(const Tensor& gradient) {
  if (gradient.dtype() != dtypes::bf16) return gradient;
  Tensor out = Tensor::empty(gradient.shape(), dtypes::fp32);
  kernels::from_bf16(gradient.numel(), gradient.as<uint16_t>(), out.as<float>());
  return out;
}

Tensor wide_result(const Shape& shape, DType dtype) {
  if (dtype != dtypes::bf16) return Tensor::empty(shape, dtype);
  return Tensor::empty(shape, dtypes::fp32, MemoryKind::kWorkspace);
}

Tensor narrowed(const Tensor& values, DType dtype) {
  if (dtype != dtypes::bf16) return values;
  Tensor out = Tensor::empty(values.shape(), dtype);
  kernels::to_bf16(values.numel(), values.as<float>(), out.as<uint16_t>());
  return out;
}

void require_result(std::string_view op, DType dtype) {
  require(dtype == dtypes::fp32 || dtype == dtypes::bf16, op, "dtype of the result: got ", dtype,
          ", expected fp32 or bf16");
}

void require_values(std::string_view op, std::string_view what, const Tensor& x) {
  if (x.dtype() != dtypes::bf16 || x.quant() || !x.contiguous()) require_float(op, what, x);
}

void require_float(std::string_view op, std::string_view what, const Tensor& x) {
  require((x.dtype() == dtypes::fp32 || x.dtype() == dtypes::fp64) && !x.quant(), op, what,
          " must be fp32 (or fp64), got ", x, x.dtype().is_float() ? "" : ". Dequantize it first");
  require(x.contiguous(), op, what, " must be dense, got a view of ", x);
}

Tensor checked_bias(std::string_view op, std::span<const Tensor> in) {
  const Tensor &x = in[0], &w = in[1];
  const bool f64 = x.dtype() == dtypes::fp64;
  require(f64 == (w.dtype() == dtypes::fp64), op, "x and w must both be fp64, or neither: got x ", x, ", w ", w);
  if (in.size() <= 2) return {};
  const Tensor& bias = in[2];
  require(bias.shape() == Shape{w.rows()} && bias.dtype() == (f64 ? dtypes::fp64 : dtypes::fp32), op, "bias must be [",
          w.rows(), "] ", f64 ? "fp64" : "fp32", ", got ", bias);
  return bias;
}

void require_same(std::string_view op, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), op, "operands differ: got ", a, " and ", b);
}

void require_here(std::string_view op, std::string_view what, const Tensor& x) {
  if (x.device() == current_device()) return;
  fail_with(ErrorCode::kDevice, op, what, " (", x, ") is on ", to_string(x.device()), ", but the current device is ",
            to_string(current_device()), ". Copy it there (to_device), or change the DeviceGuard.");
}

bool is_integer(DType dtype) {
  const DTypeKind kind = dtype.kind();
  return kind == DTypeKind::kInt || kind == DTypeKind::kUint || kind == DTypeKind::kSign;
}

double magnitude(DType dtype) {
  const DTypeInfo& info = dtype.info();
  return std::max(std::fabs(static_cast<double>(info.qmin)), std::fabs(static_cast<double>(info.qmax)));
}

int64_t most_products_in_int32(DType a, DType b) {
  return static_cast<int64_t>(static_cast<double>(std::numeric_limits<int32_t>::max()) / (magnitude(a) * magnitude(b)));
}

kernels::GemmOperand gemm_operand(const Tensor& t, bool k_major) {
  kernels::GemmOperand o;
  o.data = t.data();
  o.dtype = t.dtype();
  o.layout = t.layout();
  o.stride = t.stride();
  o.k_major = k_major;
  o.scale = t.scale_map();
  if (const Tensor sums = t.row_sums(); sums.defined() && !k_major) o.row_sums = sums.as<int32_t>();
  return o;
}

void gemm_into(kernels::GemmArgs& args, GradSlot& slot) {
  const GradTarget target = slot.target();
  args.c = target.out.data();
  args.c_dtype = target.out.dtype();
  args.ldc = target.out.cols();
  args.accumulate = target.accumulate;
  args.sr = target.sr;
  kernels::gemm(args);
  slot.commit();
}

void decline_rows_on_device(const GradSlot& slot) {
  slot.decline_rows(concat("its gradient was not produced in blocks of rows: ", to_string(current_device()),
                           " computes whole tensors"));
}

Tensor total_of(const Tensor& x) {
  Tensor out = Tensor::empty(Shape{}, dtypes::fp32);
  kernels::ReduceArgs args;
  args.rows = 1;
  args.cols = args.ldx = x.numel();
  args.x = x.as<float>();
  args.out = out.as<float>();
  kernels::reduce(args);
  return out;
}

Tensor column_sums(const Tensor& g) {
  Tensor out = Tensor::zeros({g.cols()}, g.dtype());
  if (g.dtype() == dtypes::fp64) {
    for (int64_t r = 0; r < g.rows(); ++r)
      for (int64_t c = 0; c < g.cols(); ++c) out.as<double>()[c] += g.as<double>()[r * g.cols() + c];
    return out;
  }
  kernels::ReduceArgs args;
  args.axis = kernels::ReduceAxis::kColumns;
  args.rows = g.rows();
  args.cols = g.cols();
  args.x = g.as<float>();
  args.ldx = g.cols();
  args.out = out.as<float>();
  kernels::reduce(args);
  return out;
}

namespace {

void put_masked(const Tensor& g, const Tensor& mask, const Tensor& out) {
  kernels::MaskArgs args;
  args.rows = g.rows();
  args.cols = g.cols();
  args.g = {g.data(), g.dtype()};
  args.mask = static_cast<const uint64_t*>(mask.data());
  args.gx = {out.data(), out.dtype()};
  if (g.numel() > 0) kernels::apply_mask(args);
}

}  // namespace

Tensor masked(const Tensor& g, const Tensor& mask, DType dtype) {
  Tensor out = Tensor::empty(g.shape(), dtype);
  put_masked(g, mask, out);
  return out;
}

void masked_into(const Tensor& g, const Tensor& mask, GradSlot& slot) {
  if (slot.dtype() == dtypes::bf16) return slot.set_rounded(masked(g, mask, slot.stored_dtype()));
  const GradTarget target = slot.target();
  if (target.accumulate)
    kernels::add(g.numel(), target.out.as<float>(), masked(g, mask).as<float>(), target.out.as<float>());
  else
    put_masked(g, mask, target.out);
  slot.commit();
}

}  // namespace bitgrad
