#include "ops/product/operand.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "ops/common.h"
#include "ops/product/transposed.h"

namespace bitgrad {

OperandForm form_of(const Tensor& matrix) {
  OperandForm form;
  form.rows = matrix.rows();
  form.cols = matrix.cols();
  form.dtype = matrix.dtype();
  if (!matrix.quant()) return form;
  const QuantParams& params = *matrix.quant();
  form.scales = params.granularity;
  form.unit_scale = params.scale == nullptr;
  form.zero_point = params.zero != nullptr;
  form.offset = params.offset != nullptr;
  form.scheme = params.scheme;
  return form;
}

namespace detail {

Side side_of(const Tensor& stored, bool contracted_rows) {
  return side_of(stored, contracted_rows, stored.scale_map());
}

Side side_of(const Tensor& stored, bool contracted_rows, const ScaleMap& scale) {
  Side side;
  side.free = contracted_rows ? stored.cols() : stored.rows();
  side.contracted = contracted_rows ? stored.rows() : stored.cols();
  if (stored.layout() == layouts::transposed) {
    ensure(contracted_rows, "linear", "rows of ", stored, " in layout transposed that are not contracted");
    side.gemm = from_transposed(stored.data(), stored.dtype(), side.contracted, scale);
  } else {
    side.gemm = gemm_operand(stored, contracted_rows);
    side.gemm.scale = scale;
  }
  return side;
}

ScaleMap scale_map_of(const OperandForm& form) {
  static const float kUnread = 1;
  static const int32_t kUnreadZero = 0;
  if (!form.scales && !form.zero_point && !form.offset) return {};
  ScaleMap map = scale_steps(form.scales.value_or(Granularity::tensor()), form.cols);
  if (!form.unit_scale) map.scale = &kUnread;
  if (form.zero_point) map.zero = &kUnreadZero;
  if (form.offset) map.offset = &kUnread;
  return map;
}

Side side_of(const OperandForm& form, bool contracted_rows) {
  Side side;
  side.free = contracted_rows ? form.cols : form.rows;
  side.contracted = contracted_rows ? form.rows : form.cols;
  side.gemm.dtype = form.dtype;
  side.gemm.stride = row_bytes_memory(form.dtype, form.cols);
  side.gemm.k_major = contracted_rows;
  side.gemm.scale = scale_map_of(form);
  return side;
}

kernels::GemmArgs product_args(const Side& a, const Side& b, DType c, const float* bias) {
  kernels::GemmArgs args;
  args.m = a.free;
  args.n = args.ldc = b.free;
  args.k = a.contracted;
  args.a = a.gemm;
  args.b = b.gemm;
  args.c_dtype = c;
  args.bias = bias;
  return args;
}

Members members_of(std::string_view where, const Tensor& stored, int64_t rows, bool contracted_rows) {
  Members out;
  out.side.gemm = gemm_operand(stored, contracted_rows);
  out.side.free = contracted_rows ? stored.cols() : rows;
  out.side.contracted = contracted_rows ? rows : stored.cols();
  out.bytes = rows * stored.stride();
  const ScaleMap& map = out.side.gemm.scale;
  if (map.row_step == 0) return out;
  require(rows % map.row_group == 0 || rows == stored.rows(), where, "scales of ", stored, " per ",
          stored.quant()->granularity, " span its matrices of ", rows, " rows: expected groups that divide them");
  out.scales = rows / map.row_group * map.row_step;
  return out;
}

kernels::GemmArgs batch_args(int64_t count, const Members& a, const Members& b, DType c) {
  kernels::GemmArgs args = product_args(a.side, b.side, c);
  args.batch.count = count;
  args.batch.a = a.bytes;
  args.batch.b = b.bytes;
  args.batch.c = args.m * args.n;
  args.batch.a_scale = a.scales;
  args.batch.b_scale = b.scales;
  return args;
}

int64_t MatrixOperand::block_rows() const { return std::max<int64_t>(1, matrix_.rows()); }

Tensor MatrixOperand::rows(int64_t begin, int64_t end, Tensor&) const {
  return begin == 0 && end == matrix_.rows() ? matrix_ : matrix_.row_slice(begin, end);
}

}  // namespace detail
}  // namespace bitgrad
