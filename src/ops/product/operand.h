// The sides of a product, and the one place where its arguments for family gemm are made. The plan (plan.cpp) makes
// them of forms, the runs of tensors: both ask for the same kernel.
#pragma once

#include <string_view>

#include "bitgrad/kernels/gemm.h"
#include "bitgrad/ops/product.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// One side as a kernel reads it, and the extents of its free and of its contracted index.
struct Side {
  kernels::GemmOperand gemm;
  int64_t free = 0, contracted = 0;
};
// A stored matrix, [contracted, free] or [free, contracted]. Contracted rows may lie in layout transposed.
Side side_of(const Tensor& stored, bool contracted_rows);
// The same with these scales, in coordinates of the stored matrix.
Side side_of(const Tensor& stored, bool contracted_rows, const ScaleMap& scale);
// A form: no data, and scales that nobody may read.
Side side_of(const OperandForm& form, bool contracted_rows);
ScaleMap scale_map_of(const OperandForm& form);

// C[free of a, free of b] = sum over the contracted index, rows of C one after another. C's memory is the caller's.
kernels::GemmArgs product_args(const Side& a, const Side& b, DType c = dtypes::fp32, const float* bias = nullptr);

// Matrices of `rows` stored rows that are contiguous in `stored`, with its scales: a side of a batch.
struct Members {
  Side side;
  int64_t bytes = 0, scales = 0;  // from one to the next
};
// Throws Error where scales are shared by rows of two matrices. `where` names the op.
Members members_of(std::string_view where, const Tensor& stored, int64_t rows, bool contracted_rows);
// product_args of every pair of members, C's dense and one after another.
kernels::GemmArgs batch_args(int64_t count, const Members& a, const Members& b, DType c);

// A side that need not exist as a whole: a matrix, or the windows of a convolution (windows.h), whose codes are
// gathered a block of rows at a time. The drivers (forward.h, gradient.h) ask it for blocks of its stored rows: rows of
// the result where they are free, pieces of the sums where they are contracted.
class Operand {
 public:
  virtual ~Operand() = default;
  // All rows, for the choice of kernels; data is null where they are not in memory.
  virtual Side side(bool contracted_rows) const = 0;
  virtual int64_t row_count() const = 0;
  // Rows that are made at once, at least 1. A pure function of the form: it cuts sums of floats.
  virtual int64_t block_rows() const = 0;
  // Stored rows [begin, end) with their scales, canonical. `workspace` is memory of the caller's task, kept from block
  // to block, that the operand may fill, replace or leave; the result is valid until the next call with it.
  virtual Tensor rows(int64_t begin, int64_t end, Tensor& workspace) const = 0;
};

// Rows that are in memory: one block.
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

}  // namespace bitgrad::detail
