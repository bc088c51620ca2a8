// Family rowwise in double: the references for gradient checks. Sums are sequential; exp and log are the C library's.
#include <cmath>

#include "kernels/rowwise.h"
#include "kernels/rowwise/rows.h"

namespace bitgrad::kernels::rowwise {
namespace {

const double* doubles(const FloatsIn& x) { return static_cast<const double*>(x.data); }
double* doubles(const FloatsOut& y) { return static_cast<double*>(y.data); }

double largest(const double* x, int64_t n) {
  double top = -INFINITY;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

double sum_of_exp(const double* x, int64_t n, double top) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += std::exp(x[i] - top);
  return total;
}

}  // namespace

void softmax_fp64(const SoftmaxRowsArgs& args) {
  const int64_t n = args.cols;
  for (int64_t r = 0; r < args.rows; ++r) {
    const double* const x = doubles(args.x) + r * n;
    double* const y = doubles(args.y) + r * n;
    const double top = largest(x, n), total = sum_of_exp(x, n, top);
    for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - top) / total;
  }
}

void softmax_backward_fp64(const SoftmaxRowsBackwardArgs& args) {
  const int64_t n = args.cols;
  for (int64_t r = 0; r < args.rows; ++r) {
    const double *const y = doubles(args.y) + r * n, *const gy = doubles(args.gy) + r * n;
    double dot = 0;
    for (int64_t i = 0; i < n; ++i) dot += gy[i] * y[i];
    for (int64_t i = 0; i < n; ++i) doubles(args.gx)[r * n + i] = y[i] * (gy[i] - dot);
  }
}

void norm_fp64(const NormRowsArgs& args) {
  const int64_t n = args.cols;
  const double *const gamma = doubles(args.gamma), *const beta = doubles(args.beta);
  for (int64_t r = 0; r < args.rows; ++r) {
    const double* const x = doubles(args.x) + r * n;
    double mean = 0, squares = 0;
    for (int64_t i = 0; args.centered && i < n; ++i) mean += x[i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double inv = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(args.eps));
    for (int64_t i = 0; i < n; ++i)
      doubles(args.y)[r * n + i] = (x[i] - mean) * inv * gamma[i] + (beta == nullptr ? 0.0 : beta[i]);
    if (args.centered) doubles(args.mean)[r] = mean;
    doubles(args.inv)[r] = inv;
  }
}

void norm_backward_fp64(const NormRowsBackwardArgs& args) {
  const int64_t n = args.cols;
  double *const ggamma = doubles(args.ggamma), *const gbeta = doubles(args.gbeta);
  for (int64_t c = 0; c < n; ++c) {
    if (ggamma != nullptr) ggamma[c] = 0;
    if (gbeta != nullptr) gbeta[c] = 0;
  }
  for (int64_t r = 0; r < args.rows; ++r) {
    const double *const x = doubles(args.x) + r * n, *const gy = doubles(args.gy) + r * n;
    const double mean = args.centered ? doubles(args.mean)[r] : 0.0, inv = doubles(args.inv)[r];
    double mean_h = 0, mean_h_xhat = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double xhat = (x[i] - mean) * inv, h = gy[i] * doubles(args.gamma)[i];
      mean_h += h / static_cast<double>(n);
      mean_h_xhat += h * xhat / static_cast<double>(n);
      if (ggamma != nullptr) ggamma[i] += gy[i] * xhat;
      if (gbeta != nullptr) gbeta[i] += gy[i];
    }
    for (int64_t i = 0; args.gx.data != nullptr && i < n; ++i) {
      const double xhat = (x[i] - mean) * inv, h = gy[i] * doubles(args.gamma)[i];
      doubles(args.gx)[r * n + i] = (h - (args.centered ? mean_h : 0.0) - xhat * mean_h_xhat) * inv;
    }
  }
}

void cross_entropy_fp64(const CrossEntropyRowsArgs& args) {
  const int64_t n = args.cols;
  for (int64_t r = 0; r < args.rows; ++r) {
    double &loss = doubles(args.loss)[r], &top = doubles(args.top)[r], &total = doubles(args.total)[r];
    loss = top = 0;
    total = 1;
    if (args.targets[r] == args.ignore) continue;
    const double* const x = doubles(args.x) + r * n;
    top = largest(x, n);
    total = sum_of_exp(x, n, top);
    loss = std::log(total) - (x[class_of(args.targets[r], n, args.flags)] - top);
  }
}

void cross_entropy_backward_fp64(const CrossEntropyRowsBackwardArgs& args) {
  const int64_t n = args.cols;
  const double factor = *doubles(args.factor);
  for (int64_t r = 0; r < args.rows; ++r) {
    const bool ignored = args.targets[r] == args.ignore;
    const int64_t label = ignored ? -1 : class_of(args.targets[r], n, nullptr);
    for (int64_t i = 0; i < n; ++i) {
      const double p = std::exp(doubles(args.x)[r * n + i] - doubles(args.top)[r]) / doubles(args.total)[r];
      doubles(args.gx)[r * n + i] = ignored ? 0.0 : (p - (i == label ? 1.0 : 0.0)) * factor;
    }
  }
}

}  // namespace bitgrad::kernels::rowwise
