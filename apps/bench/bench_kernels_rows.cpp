// Functions and copies of strided arrays, and row-wise kernels: softmax, norms, cross-entropy.
#include <algorithm>

#include "bench_kernels_cases.h"
#include "kernels/pointwise.h"
#include "kernels/rowwise.h"

namespace bitgrad::bench {
namespace {

kernels::FloatsIn in(const Tensor& t) { return {t.data(), t.dtype()}; }
kernels::FloatsOut out(const Tensor& t) { return {t.data(), t.dtype()}; }

// y = x + b, where b is one row or one column.
Case broadcast_case(const Numbers& numbers, const char* what, bool row) {
  return float_case(numbers, "pointwise", what, 8, [row](const Numbers& n) {
    const int64_t rows = n.rows(), cols = n.cols();
    const Tensor x = n.copy(), y = n.room(dtypes::fp32), b = row ? n.row_of(0.1) : n.column_of(0.1);
    kernels::PointwiseArgs args;
    args.size[2] = rows;
    args.size[3] = cols;
    args.a = {x.data(), dtypes::fp32, {0, 0, cols, 1}};
    args.b = {b.data(), dtypes::fp32, {0, 0, row ? 0 : 1, row ? 1 : 0}};
    args.y = {y.data(), dtypes::fp32, {0, 0, cols, 1}};
    return [args, x, y, b] { kernels::pointwise(args); };
  });
}

// [rows, cols] transposed, or [rows, 2, cols / 2] with its first two axes swapped.
Case copy_case(const Numbers& numbers, const char* what, bool transposed) {
  return float_case(numbers, "pointwise", what, 8, [transposed](const Numbers& n) {
    const int64_t rows = n.rows(), cols = n.cols(), half = cols / 2;
    const Tensor x = n.copy(), y = n.room(dtypes::fp32);
    kernels::StridedCopyArgs args;
    args.x = {x.data(), dtypes::fp32, {0, half, cols, 1}};
    args.y = {y.data(), dtypes::fp32, {0, rows * half, half, 1}};
    const int64_t sizes[] = {2, rows, half};
    std::copy(sizes, sizes + 3, args.size + 1);
    if (transposed) {
      args.size[1] = 1;
      args.size[2] = cols;
      args.size[3] = rows;
      args.x = {x.data(), dtypes::fp32, {0, 0, 1, cols}};
      args.y = {y.data(), dtypes::fp32, {0, 0, rows, 1}};
    }
    return [args, x, y] { kernels::strided_copy(args); };
  });
}

Case softmax_backward_case(const Numbers& numbers) {
  return float_case(numbers, "rowwise", "softmax, backward", 12, [](const Numbers& n) {
    return [rows = n.rows(), cols = n.cols(), y = n.copy(), gy = n.copy(), gx = n.copy()] {
      kernels::softmax_rows_backward({rows, cols, in(y), in(gy), out(gx)});
    };
  });
}

// gamma, mean and inv hold arbitrary values, which do not affect the time.
Case norm_case(const Numbers& numbers) {
  return float_case(numbers, "rowwise", "layer norm, forward", 8, [](const Numbers& n) {
    const Tensor x = n.copy(), y = n.copy(), gamma = n.row_of(1.5), beta = n.row_of(0.1), mean = n.column_of(0),
                 inv = n.column_of(0);
    kernels::NormRowsArgs args;
    args.rows = n.rows();
    args.cols = n.cols();
    args.x = in(x);
    args.gamma = in(gamma);
    args.beta = in(beta);
    args.y = out(y);
    args.mean = out(mean);
    args.inv = out(inv);
    return [args, x, y, gamma, beta, mean, inv] { kernels::norm_rows(args); };
  });
}

Case norm_backward_case(const Numbers& numbers) {
  return float_case(numbers, "rowwise", "layer norm, backward", 12, [](const Numbers& n) {
    const Tensor x = n.copy(), gy = n.copy(), gx = n.copy(), gamma = n.row_of(1.5), mean = n.column_of(0.1),
                 inv = n.column_of(1.5), ggamma = n.row_of(0), gbeta = n.row_of(0);
    kernels::NormRowsBackwardArgs args;
    args.rows = n.rows();
    args.cols = n.cols();
    args.x = in(x);
    args.gy = in(gy);
    args.gamma = in(gamma);
    args.mean = in(mean);
    args.inv = in(inv);
    args.gx = out(gx);
    args.ggamma = out(ggamma);
    args.gbeta = out(gbeta);
    return [args, x, gy, gx, gamma, mean, inv, ggamma, gbeta] { kernels::norm_rows_backward(args); };
  });
}

Case cross_entropy_case(const Numbers& numbers, bool backward) {
  return float_case(
      numbers, "rowwise", backward ? "cross-entropy, backward" : "cross-entropy, forward", backward ? 8 : 4,
      [backward](const Numbers& n) {
        const Tensor x = n.copy(), gx = backward ? n.copy() : n.row_of(0), loss = n.column_of(0), top = n.column_of(1),
                     total = n.column_of(5), factor = Tensor::scalar(1);
        const Tensor targets = Tensor::zeros({n.rows()}, dtypes::int32);
        return [backward, rows = n.rows(), cols = n.cols(), x, gx, loss, top, total, factor, targets] {
          const int32_t* const t = targets.as<int32_t>();
          if (backward)
            kernels::cross_entropy_rows_backward({rows, cols, in(x), t, -1, in(top), in(total), in(factor), out(gx)});
          else
            kernels::cross_entropy_rows({rows, cols, in(x), t, -1, out(loss), out(top), out(total), nullptr});
        };
      });
}

}  // namespace

std::vector<Case> row_cases(const Numbers& numbers) {
  std::vector<Case> cases{
      broadcast_case(numbers, "add, a row repeated", true), broadcast_case(numbers, "add, a column repeated", false),
      copy_case(numbers, "permute, rows stay whole", false), copy_case(numbers, "permute, transposed", true)};
  cases.push_back(float_case(numbers, "rowwise", "softmax, forward", 8, [](const Numbers& n) {
    return [rows = n.rows(), cols = n.cols(), x = n.copy(), y = n.copy()] {
      kernels::softmax_rows({rows, cols, in(x), out(y)});
    };
  }));
  cases.push_back(softmax_backward_case(numbers));
  cases.push_back(norm_case(numbers));
  cases.push_back(norm_backward_case(numbers));
  cases.push_back(cross_entropy_case(numbers, false));
  cases.push_back(cross_entropy_case(numbers, true));
  return cases;
}

}  // namespace bitgrad::bench
