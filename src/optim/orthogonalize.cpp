#include "optim/orthogonalize.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/kernels/gemm.h"
#include "bitgrad/tensor/tensor.h"
#include "kernels/elementwise.h"
#include "optim/rule_steps.h"

namespace bitgrad::detail {
namespace {

constexpr float kEps = 1e-7f;
constexpr int64_t kBlock = 128;  // rows of a symmetric product that the CPU computes at a time

constexpr std::array<float, 3> kJordan = {3.4445f, -4.7750f, 2.0315f};
constexpr std::array<float, 3> kPolarExpress[] = {
#include "optim/polar_express.inc"
};

// Not in bf16, whose errors grow with each product of squares.
bool by_gram(NsDType dtype, int64_t rows, int64_t cols) {
  return dtype == NsDType::kFp32 && std::max(rows, cols) >= 2 * std::min(rows, cols);
}

// `count` matrices of one shape, one after another, in the dtype of the products.
class Iterations {
 public:
  Iterations(const NewtonSchulz& how, int64_t count, int64_t rows, int64_t cols)
      : how_(how),
        dtype_(how.dtype == NsDType::kBf16 ? dtypes::bf16 : dtypes::fp32),
        count_(count),
        rows_(rows),
        cols_(cols),
        k_(std::min(rows, cols)) {}

  // x fp32 [count * rows, cols].
  void run(const Tensor& x) const {
    const Tensor start = dtype_ == dtypes::fp32 ? x : rounded(x);
    Tensor now = start, next = Tensor::empty(x.shape(), dtype_, MemoryKind::kWorkspace);
    if (by_gram(how_.dtype, rows_, cols_)) {
      multiply(gram_form(now), now, next);
      std::swap(now, next);
    } else {
      for (const auto& abc : how_.iterations) {
        multiply(polynomial(gram(now), abc), now, next);
        std::swap(now, next);
      }
    }
    if (dtype_ == dtypes::bf16)
      kernels::from_bf16(x.numel(), now.as<uint16_t>(), x.as<float>());
    else if (now.data() != x.data())
      kernels::scale(x.numel(), now.as<float>(), 1.0f, x.as<float>());
  }

 private:
  // The product of all P of the iterations.
  Tensor gram_form(const Tensor& x) const {
    Tensor s = gram(x), q;
    for (size_t i = 0; i < how_.iterations.size(); ++i) {
      const Tensor p = polynomial(s, how_.iterations[i]);
      q = q.defined() ? symmetric(p, q, dtype_) : p;
      if (i + 1 < how_.iterations.size()) s = symmetric(symmetric(p, s, dtype_), p, dtype_);
    }
    return q;
  }

  Tensor square(DType dtype) const { return Tensor::empty({count_ * k_, k_}, dtype, MemoryKind::kWorkspace); }
  static Tensor rounded(const Tensor& x) {
    Tensor y = Tensor::empty(x.shape(), dtypes::bf16, MemoryKind::kWorkspace);
    kernels::to_bf16(x.numel(), x.as<float>(), y.as<uint16_t>());
    return y;
  }
  static Tensor wide(const Tensor& x) {
    if (x.dtype() == dtypes::fp32) return x;
    Tensor y = Tensor::empty(x.shape(), dtypes::fp32, MemoryKind::kWorkspace);
    kernels::from_bf16(x.numel(), x.as<uint16_t>(), y.as<float>());
    return y;
  }

  static kernels::GemmOperand operand(const Tensor& t, bool k_major) {
    kernels::GemmOperand out;
    out.data = t.data();
    out.dtype = t.dtype();
    out.stride = t.cols() * t.dtype().bits() / 8;
    out.k_major = k_major;
    return out;
  }
  // C [m, n] per matrix; `rows` and `k` are those of a member of A and B as stored.
  kernels::GemmArgs product(const Tensor& a, bool a_k_major, const Tensor& b, bool b_k_major, const Tensor& c) const {
    kernels::GemmArgs args;
    args.a = operand(a, a_k_major);
    args.b = operand(b, b_k_major);
    args.c = c.data();
    args.c_dtype = c.dtype();
    args.ldc = c.cols();
    args.batch.count = count_;
    args.batch.a = a.rows() / count_ * args.a.stride;
    args.batch.b = b.rows() / count_ * args.b.stride;
    args.batch.c = c.rows() / count_ * c.cols();
    return args;
  }
  // Runs a product [k, k] that is symmetric: below the diagonal, in blocks of rows. A device, to which blocks give too
  // few tiles, computes all of it, and takes what is below the diagonal, too.
  void run_symmetric(kernels::GemmArgs args, const Tensor& c) const {
    char* const a = static_cast<char*>(const_cast<void*>(args.a.data));
    char* const out = static_cast<char*>(args.c);
    const int64_t a_step = args.a.k_major ? args.a.dtype.bits() / 8 : args.a.stride;
    const int64_t c_step = args.ldc * c.dtype().bits() / 8;
    const int64_t block = current_device().is_cpu() ? kBlock : k_;
    for (int64_t row = 0; row < k_; row += block) {
      args.m = std::min(block, k_ - row);
      args.n = row + args.m;
      args.a.data = a + row * a_step;
      args.c = out + row * c_step;
      kernels::select_gemm(args).run(args);
    }
    if (k_ <= kBlock) return;
    const int64_t pieces = current_device().is_cpu() ? 1 : 32, all = count_ * k_ * pieces;
    if (c.dtype() == dtypes::bf16)
      run_map(maps::MirrorBf16{{k_, pieces, c.as<uint16_t>()}}, all, rows_per_task(k_));
    else
      run_map(maps::MirrorFloats{{k_, pieces, c.as<float>()}}, all, rows_per_task(k_));
  }

  // X X^T, or X^T X if X is tall.
  Tensor gram(const Tensor& x) const {
    Tensor s = square(dtype_);
    const bool tall = rows_ > cols_;
    kernels::GemmArgs args = product(x, tall, x, tall, s);
    args.k = std::max(rows_, cols_);
    run_symmetric(args, s);
    return s;
  }
  // a b of symmetric matrices that commute.
  Tensor symmetric(const Tensor& a, const Tensor& b, DType dtype) const {
    Tensor c = square(dtype);
    kernels::GemmArgs args = product(a, false, b, false, c);
    args.k = k_;
    run_symmetric(args, c);
    return c;
  }
  // a I + b S + c S S.
  Tensor polynomial(const Tensor& s, const std::array<float, 3>& abc) const {
    const Tensor p = symmetric(s, s, dtypes::fp32), w = wide(s);
    run_map(maps::SecondDegree{abc[1], abc[2], w.as<float>(), p.as<float>(), p.as<float>()}, p.numel());
    run_map(maps::AddToDiagonal{abc[0], k_, p.as<float>()}, count_ * k_);
    return dtype_ == dtypes::bf16 ? rounded(p) : p;
  }
  // P X, or X P if X is tall.
  void multiply(const Tensor& p, const Tensor& x, const Tensor& out) const {
    const bool tall = rows_ > cols_;
    kernels::GemmArgs args = tall ? product(x, false, p, false, out) : product(p, false, x, true, out);
    args.m = rows_;
    args.n = cols_;
    args.k = k_;
    kernels::select_gemm(args).run(args);
  }

  const NewtonSchulz& how_;
  DType dtype_;
  int64_t count_, rows_, cols_, k_;
};

}  // namespace

NewtonSchulz newton_schulz(const OptimizerSpec& spec) {
  require(spec.ns_steps >= 1 && spec.ns_steps <= 100, "optimizer", "ns_steps must be in [1, 100], got ", spec.ns_steps);
  require(spec.ns_triples.size() % 3 == 0, "optimizer", "ns_triples: got ", spec.ns_triples.size(),
          " numbers, expected a, b and c of each iteration");
  require(std::ssize(spec.ns_triples) <= 3 * spec.ns_steps, "optimizer", "ns_triples: got ", spec.ns_triples.size() / 3,
          " triples for ", spec.ns_steps, " iterations (ns_steps)");
  require(spec.ns_triples.empty() || spec.ns_coefficients == NsCoefficients::kJordan, "optimizer",
          "ns_triples: got numbers beside ns_coefficients ", enum_name(spec.ns_coefficients), ", expected one of them");
  for (const double x : spec.ns_triples)
    require(std::isfinite(static_cast<float>(x)), "optimizer", "ns_triples: got ", x, ", expected finite numbers");
  std::vector<std::array<float, 3>> given;
  for (size_t i = 0; i < spec.ns_triples.size(); i += 3)
    given.push_back({static_cast<float>(spec.ns_triples[i]), static_cast<float>(spec.ns_triples[i + 1]),
                     static_cast<float>(spec.ns_triples[i + 2])});
  const bool polar = given.empty() && spec.ns_coefficients == NsCoefficients::kPolarExpress;
  if (polar) given.assign(std::begin(kPolarExpress), std::end(kPolarExpress));
  if (given.empty()) given.push_back(kJordan);
  given.resize(static_cast<size_t>(spec.ns_steps), given.back());
  return {std::move(given), polar ? 1.02f : 1.0f, spec.ns};
}

void orthogonalize(const NewtonSchulz& how, int64_t count, int64_t rows, int64_t cols, float* x) {
  if (count == 0 || rows == 0 || cols == 0) return;
  const Tensor norms = Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace);
  sum_squares_into(kernels::ReduceAxis::kRows, count, rows * cols, x, norms.as<float>());
  run_map(maps::NormsOfSquares{how.norm_factor, kEps, norms.as<float>()}, count);
  run_map(maps::DivideByNorms{norms.as<float>(), rows, cols, x}, count * rows, rows_per_task(cols));
  const Tensor all = Tensor::external(x, {count * rows, cols}, dtypes::fp32, nullptr, current_device());
  Iterations(how, count, rows, cols).run(all);
}

int64_t orthogonalize_macs(const NewtonSchulz& how, int64_t count, int64_t rows, int64_t cols) {
  const int64_t k = std::min(rows, cols), n = std::max(rows, cols), steps = std::ssize(how.iterations);
  // A symmetric product by blocks of rows.
  const auto half = [&](int64_t depth) {
    int64_t macs = 0;
    for (int64_t row = 0; row < k; row += kBlock) macs += std::min(kBlock, k - row) * std::min(row + kBlock, k) * depth;
    return macs;
  };
  const int64_t one = by_gram(how.dtype, rows, cols) ? half(n) + (steps + 3 * (steps - 1)) * half(k) + k * k * n
                                                     : steps * (half(n) + half(k) + k * k * n);
  return count * one;
}

}  // namespace bitgrad::detail
