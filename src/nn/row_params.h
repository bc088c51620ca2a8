// Rows of a parameter and their scales, as views.
#pragma once

#include <memory>

#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

// Whether new codes keep the parameter's scales.
bool scales_given(const Parameter& p);

// A tensor of any shape as [rows, cols], sharing its memory.
Tensor as_matrix(const Tensor& t);
// Whether every scale belongs to one row: channel(0), token, or groups along a row.
bool scales_within_rows(const Granularity& granularity);
// The index of the first scale used by `row` of a matrix with `cols` columns.
int64_t first_scale(const Granularity& granularity, int64_t cols, int64_t row);
// The params of rows [begin, end), sharing memory. `begin` must not split a group of rows.
std::shared_ptr<const QuantParams> params_of_rows(const std::shared_ptr<const QuantParams>& params, int64_t cols,
                                                  int64_t begin, int64_t end);
// Rows [begin, end) of codes as a matrix with their scales, as params_of_rows.
Tensor rows_of(const Tensor& codes, int64_t begin, int64_t end);

}  // namespace bitgrad::detail
