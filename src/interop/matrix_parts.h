// Reorders and stacks rows of matrices: codes move with their scales, and nothing is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bitgrad/tensor/tensor.h"
#include "interop/tensor_map.h"

namespace bitgrad::interop {

// For each row 0 .. rows - 1 of the file's tensor, the row of the parameter. interleaved: rope rotates neighbours (2i,
// 2i + 1) of a head in the file and halves (i, i + d/2) in the model; otherwise the other way round. If no heads are
// reordered: begin, begin + 1, ...
std::vector<int64_t> rows_in_file(const MappedTensor& mapped, bool interleaved);

// A new CPU tensor of these rows of a matrix, or elements of a vector. Scales that are not per tensor become scales per
// row, or per group along a row.
Tensor take_rows(const Tensor& matrix, std::span<const int64_t> rows);
// Stacks matrices of one dtype and width in this order. Scales are as coarse as possible: a single one if all are
// equal, one per row if those within each row are, otherwise per group.
Tensor stack_rows(const std::vector<Tensor>& parts);
// Turns parts that are not of one type (dtype, with or without offsets or zero points) into fp32. Whether it did.
bool as_one_type(std::vector<Tensor>& parts);
// The inverse of a permutation of 0 .. n - 1: undoes take_rows in that order.
std::vector<int64_t> inverse_order(std::span<const int64_t> order);

// The same codes with scales and offsets rounded to fp16.
Tensor with_fp16_scales(const Tensor& codes);
// The same codes with scales and offsets multiplied by a factor.
Tensor with_scales_times(const Tensor& codes, float factor);

}  // namespace bitgrad::interop
