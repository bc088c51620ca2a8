// The sides of a product, and the only place where its arguments for family gemm are built. Planning (plan_product)
// builds them from forms, execution from tensors, so both select the same kernel.
#pragma once

#include <string_view>

#include "bitgrad/kernels/gemm.h"
#include "bitgrad/ops/product.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// One side as a kernel reads it, and the extents of its free and contracted indices.
struct Side {
  kernels::GemmOperand gemm;
  int64_t free = 0, contracted = 0;
};
// A stored matrix, [contracted, free] or [free, contracted]. If its rows are contracted, it may be in layout
// transposed.
Side side_of(const Tensor& stored, bool contracted_rows);
// The same with the given scales, in coordinates of the stored matrix.
Side side_of(const Tensor& stored, bool contracted_rows, const ScaleMap& scale);
// From a form: without data, and with scales that must not be read.
Side side_of(const OperandForm& form, bool contracted_rows);
ScaleMap scale_map_of(const OperandForm& form);

// C[free of a, free of b] = sum over the contracted index; the rows of C are contiguous. The caller provides the memory
// of C.
kernels::GemmArgs product_args(const Side& a, const Side& b, DType c = dtypes::fp32, const float* bias = nullptr);

// Matrices of `rows` stored rows each, contiguous in `stored`, with its scales: one side of a batch.
struct Members {
  Side side;
  int64_t bytes = 0, scales = 0;  // distance between members
};
// Throws Error if rows of different matrices share scales. `where` names the op.
Members members_of(std::string_view where, const Tensor& stored, int64_t rows, bool contracted_rows);
// product_args for every pair of members; each C is dense, and they are contiguous.
kernels::GemmArgs batch_args(int64_t count, const Members& a, const Members& b, DType c);

// A side that need not exist as a whole: a matrix, or the windows of a convolution (windows.h), whose codes are
// gathered one block of rows at a time. The drivers (forward_product, gradient.h) request blocks of its stored rows:
// rows of the result if they are free, pieces of the sums if they are contracted.
class Operand {
 public:
  virtual ~Operand() = default;
  // All rows, for choosing kernels; data is nullptr if they are not in memory.
  virtual Side side(bool contracted_rows) const = 0;
  virtual int64_t row_count() const = 0;
  // Rows produced at a time, at least 1. A pure function of the form, because it determines how float sums are split.
  virtual int64_t block_rows() const = 0;
  // Stored rows [begin, end) with their scales, canonical. `workspace` is memory of the caller's task that persists
  // from block to block; the operand may fill, replace or ignore it. The result is valid until the next call with the
  // same workspace.
  virtual Tensor rows(int64_t begin, int64_t end, Tensor& workspace) const = 0;
};

// Rows that are in memory, as a single block.
class MatrixOperand final : public Operand {
 public:
  explicit MatrixOperand(const Tensor& matrix) : matrix_(matrix) {}
  Side side(bool contracted_rows) const override { return side_of(matrix_, contracted_rows); }
  int64_t row_count() const override { return matrix_.rows(); }
  int64_t block_rows() const override;
  Tensor rows(int64_t begin, int64_t end, Tensor& workspace) const override;

 private:
  const Tensor matrix_;
};

// The forward product of a linear layer, on packed operands in the layouts that the cheapest kernel reads: y = x w^T (+
// bias, fp32 or undefined) by the best kernel among the layouts available for w; x is packed into the
// layout that the kernel reads. y [rows of x, rows of w], with dense or strided rows: fp32, bf16, fp64, or int32 for
// operands without scales. An operand with several blocks of rows is produced and multiplied block by block, by the
// kernel chosen for the whole shape and therefore in its order of summation. row_alone: ProductModes::row_alone.
void forward_product(const Operand& x, const Tensor& w, const Tensor& bias, const Tensor& y, bool row_alone = false);
inline void forward_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                            bool row_alone = false) {
  forward_product(MatrixOperand(x), w, bias, y, row_alone);
}

}  // namespace bitgrad::detail
