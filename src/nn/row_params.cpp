#include "nn/row_params.h"

namespace bitgrad::detail {

Tensor as_matrix(const Tensor& t) { return t.shape().rank() == 2 ? t : t.reshape({t.rows(), t.cols()}); }

bool scales_within_rows(const Granularity& g) { return g.per_row() || (g.kind == Granularity::kGroup && g.axis != 0); }

int64_t first_scale(const Granularity& g, int64_t cols, int64_t row) {
  if (scales_within_rows(g)) return row * scale_count(g, 1, cols);
  return g.kind == Granularity::kGroup ? row / g.group * cols : 0;
}

std::shared_ptr<const QuantParams> params_of_rows(const std::shared_ptr<const QuantParams>& params, int64_t cols,
                                                  int64_t begin, int64_t end) {
  if (!params) return nullptr;
  QuantParams p = *params;
  const int64_t first = first_scale(p.granularity, cols, begin), count = scale_count(p.granularity, end - begin, cols);
  for (auto* part : {&p.scale, &p.zero, &p.offset, &p.statistic})
    if (*part && (*part)->numel() != count)
      *part = std::make_shared<const Tensor>((*part)->column_slice(first, first + count));
  return std::make_shared<const QuantParams>(std::move(p));
}

Tensor rows_of(const Tensor& codes, int64_t begin, int64_t end) {
  const Tensor rows = as_matrix(codes.without_quant()).row_slice(begin, end);
  return rows.with_quant(params_of_rows(codes.quant(), codes.cols(), begin, end));
}

}  // namespace bitgrad::detail
