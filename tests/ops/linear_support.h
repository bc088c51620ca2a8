// References for the tests of linear: products of values in double, exact integer products, and the bound of a sum of k
// products.
#pragma once

#include <cmath>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/ops/ops.h"
#include "support/numbers.h"
#include "support/strict_bits.h"

namespace bitgrad::test {

// Rows of order `free` are left out while it lives, so products of equal operands have equal bits whatever their
struct Product {
  std::vector<double> value, magnitude;  // sum a*b and sum abs(a*b)
};
// c[m,n] = sum_k a(m,k) b(n,k) for accessors a and b.
template <typename A, typename B>
Product product(int64_t m, int64_t n, int64_t k, A a, B b) {
  Product out{std::vector<double>(static_cast<size_t>(m * n)), std::vector<double>(static_cast<size_t>(m * n))};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t t = 0; t < k; ++t) {
        const double p = a(i, t) * b(j, t);
        out.value[static_cast<size_t>(i * n + j)] += p;
        out.magnitude[static_cast<size_t>(i * n + j)] += std::fabs(p);
      }
  return out;
}

// Largest error of `got` in units of its bound gamma_(k+4) * sum abs(a*b): k products and sums, and up to four
// roundings of a scale (Higham 2002, section 3.1).
inline double worst(const Tensor& got, const Product& expected, int64_t k) {
  const double u = 0x1p-24, steps = static_cast<double>(k + 4), gamma = steps * u / (1 - steps * u);
  double out = 0;
  const std::vector<double> g = got.elements();
  for (size_t i = 0; i < g.size(); ++i) {
    const double error = std::fabs(g[i] - expected.value[i]), bound = gamma * expected.magnitude[i] + 1e-38;
    out = std::max(out, std::isfinite(error) ? error / bound : INFINITY);
  }
  return out;
}

inline bool integer_kind(DType d) {
  return d.kind() == DTypeKind::kInt || d.kind() == DTypeKind::kUint || d.kind() == DTypeKind::kSign;
}

// y = float(acc) * (sx * sw) (+ bias): what an integer product must give, bit for bit. Scales per tensor or per row;
// integer zero points or none.
inline std::vector<double> exact_integer_product(const Tensor& x, const Tensor& w, const Tensor& bias = {}) {
  const auto qx = x.elements(), qw = w.elements();
  const ScaleMap mx = x.scale_map(), mw = w.scale_map();
  const auto scale = [](const ScaleMap& m, int64_t r) { return m.scale ? m.scale[m.index(r, 0)] : 1.0f; };
  const auto zero = [](const ScaleMap& m, int64_t r) { return m.zero ? int64_t{m.zero[m.index(r, 0)]} : 0; };
  std::vector<double> out;
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t j = 0; j < w.rows(); ++j) {
      int64_t acc = 0;
      for (int64_t k = 0; k < x.cols(); ++k)
        acc += (static_cast<int64_t>(qx[static_cast<size_t>(i * x.cols() + k)]) - zero(mx, i)) *
               (static_cast<int64_t>(qw[static_cast<size_t>(j * x.cols() + k)]) - zero(mw, j));
      float y = static_cast<float>(acc) * (scale(mx, i) * scale(mw, j));
      if (bias.defined()) y = y + bias.as<float>()[j];
      out.push_back(y);
    }
  return out;
}

// Forward and both gradients of linear with seed gy.
struct LinearRun {
  Tensor y, gx, gw, gb;
};
inline LinearRun run_linear(const Tensor& x, const Tensor& w, const Tensor& gy, DType gx_dtype = dtypes::fp32,
                            DType gw_dtype = dtypes::fp32, const Tensor& bias = {}) {
  AccumulateSink sx, sw, sb;
  Tape tape;
  const Var vx = tape.leaf(x, &sx, gx_dtype), vw = tape.leaf(w, &sw, gw_dtype);
  const Var y = bias.defined() ? linear(vx, vw, tape.leaf(bias, &sb, dtypes::fp32)) : linear(vx, vw);
  tape.backward({y}, {gy});
  return {y.value(), sx.grad(), sw.grad(), sb.grad()};
}

// How far forward and gradients of one pair of operands are from the products of values, in units of the bound.
inline std::string check_linear(const Tensor& x, const Tensor& w, uint64_t seed) {
  const int64_t n = x.rows(), f = x.cols(), o = w.rows();
  const Tensor gy = random_tensor({n, o}, dtypes::fp32, seed);
  const LinearRun run = run_linear(x, w, gy);
  const std::vector<double> vx = x.values(), vw = w.values(), vg = gy.elements();
  const auto at = [](const std::vector<double>& v, int64_t ld) {
    return [&v, ld](int64_t r, int64_t c) { return v[static_cast<size_t>(r * ld + c)]; };
  };
  const auto transposed = [](const std::vector<double>& v, int64_t ld) {
    return [&v, ld](int64_t c, int64_t r) { return v[static_cast<size_t>(r * ld + c)]; };
  };
  const double y = worst(run.y, product(n, o, f, at(vx, f), at(vw, f)), f);
  const double gx = worst(run.gx, product(n, f, o, at(vg, o), transposed(vw, f)), o);
  const double gw = worst(run.gw, product(o, f, n, transposed(vg, o), transposed(vx, f)), n);
  if (y <= 1 && gx <= 1 && gw <= 1) return "";
  return concat("x ", x, ' ', x.describe(), "; w ", w.describe(), ": errors of y, gx, gw in units of their bound ", y,
                ", ", gx, ", ", gw);
}

}  // namespace bitgrad::test
