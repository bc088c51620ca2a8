#include "bitgrad/tensor/quant_params.h"

#include <ostream>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

std::ostream& operator<<(std::ostream& out, const Granularity& g) {
  switch (g.kind) {
    case Granularity::kTensor:
      return out << "tensor";
    case Granularity::kChannel:
      return out << "channel(" << g.axis << ')';
    case Granularity::kToken:
      return out << "token";
    case Granularity::kGroup:
      if (g.axis == 0) return out << "group(0," << g.group << ')';
      return out << "group(" << g.group << ')';
  }
  return out;
}

namespace {
// ceil(n / group) without overflow.
int64_t parts(int64_t n, int64_t group) { return n / group + (n % group != 0 ? 1 : 0); }
}  // namespace

int64_t scale_count(const Granularity& g, int64_t rows, int64_t cols) {
  switch (g.kind) {
    case Granularity::kTensor:
      return 1;
    case Granularity::kChannel:
      return g.axis == 0 ? rows : cols;
    case Granularity::kToken:
      return rows;
    case Granularity::kGroup:
      require(g.group > 0, "Granularity", "group size must be at least 1: got ", g.group);
      return g.axis == 0 ? parts(rows, g.group) * cols : rows * parts(cols, g.group);
  }
  return 0;
}

ScaleMap scale_steps(const Granularity& g, int64_t cols) {
  ScaleMap map;
  switch (g.kind) {
    case Granularity::kTensor:
      break;
    case Granularity::kToken:
      map.row_step = 1;
      break;
    case Granularity::kChannel:
      (g.axis == 0 ? map.row_step : map.col_step) = 1;
      break;
    case Granularity::kGroup:
      if (g.axis == 0) {
        map.row_group = g.group;
        map.row_step = cols;
        map.col_step = 1;
      } else {
        map.col_group = g.group;
        map.col_step = 1;
        map.row_step = (cols + g.group - 1) / g.group;
      }
  }
  return map;
}

int64_t QuantParams::bytes() const {
  int64_t total = 0;
  for (const auto& t : {scale, zero, offset, statistic}) total += t ? t->bytes() : 0;
  return total;
}

}  // namespace bitgrad
