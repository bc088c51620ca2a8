// Scales of groups along k in the order in which the kernels of layout vnni64 read them: [block of 64 rows][group of
// k][64 rows]. Rows beyond the last repeat the first of their block. A parameter that is only read keeps them so.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::kernels {

// Number of scales in this order.
int64_t panel_scale_count(int64_t rows, int64_t groups);
// Orders the scales of a matrix [rows, cols], whose map has groups along cols, into out.
void order_panel_scales(const ScaleMap& scale, int64_t rows, int64_t cols, float* out);

}  // namespace bitgrad::kernels
