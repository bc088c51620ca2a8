// out_dtype(op, d, a, b): products and sums of bare integers, computed exactly and written as d. docs/numerics.md
// section 4. Backward: the rule of the op applied to the values, in fp32 (each value rounded once to fp32):
//   matmul, y = a b:    ga = g b^T, gb = a^T g;    linear, y = a b^T:  ga = g b, gb = g^T a;
//   mul:  ga = g * b, gb = g * a;                  add:  ga = gb = g.
//
// Codes of at most 8 bits use family gemm, whose sums are exact in int64. Wider operands are summed here: a product of
// two int64 has up to 126 bits, so sums are kept in two parts, high * 2^64 + low.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/map/exact.h"
#include "ops/product/operand.h"

namespace bitgrad {
namespace {

using namespace maps::exact;
using detail::product_args, detail::side_of;

constexpr int64_t kSumBlockElements = 1 << 17;  // int64 sums per block of rows: 1 MiB
constexpr int64_t kWideRows = 8;                // rows per block of wide sums

// Writes row r of y from n exact values.
template <typename Sum>
void write_row(const Sum* sums, int64_t n, const Tensor& y, int64_t r, bool& outside) {
  const DTypeInfo& info = y.dtype().info();
  char* row = static_cast<char*>(y.data()) + r * y.stride();
  if (y.dtype() == dtypes::fp32) {
    for (int64_t j = 0; j < n; ++j) reinterpret_cast<float*>(row)[j] = rounded(sums[j]);
  } else if (y.dtype() == dtypes::int32) {
    for (int64_t j = 0; j < n; ++j)
      reinterpret_cast<int32_t*>(row)[j] = static_cast<int32_t>(clamped(sums[j], info.qmin, info.qmax, outside));
  } else if (y.dtype() == dtypes::int64) {
    for (int64_t j = 0; j < n; ++j)
      reinterpret_cast<int64_t*>(row)[j] = clamped(sums[j], info.qmin, info.qmax, outside);
  } else {
    std::memset(row, 0, static_cast<size_t>(row_bytes_memory(y.dtype(), n)));
    for (int64_t j = 0; j < n; ++j)
      store_raw(row, j, info.bits,
                static_cast<uint32_t>(encode_int(info, clamped(sums[j], info.qmin, info.qmax, outside))));
  }
}

Target target_of(const Tensor& y, uint32_t* flag) {
  const DTypeInfo& info = y.dtype().info();
  const auto kind = y.dtype() == dtypes::fp32    ? Target::kFp32
                    : y.dtype() == dtypes::int32 ? Target::kInt32
                    : y.dtype() == dtypes::int64 ? Target::kInt64
                                                 : Target::kCodes;
  return {kind, info.bits, info.qmin, info.qmax, y.data(), y.stride(), y.cols(), flag, kFlagSaturated};
}

// An integer tensor as read by maps.
Source source_of(const Tensor& t) {
  const DTypeKind kind = t.dtype().kind();
  const auto of = t.dtype() == dtypes::int64   ? Source::kInt64
                  : t.dtype() == dtypes::int32 ? Source::kInt32
                  : kind == DTypeKind::kSign   ? Source::kSign
                  : kind == DTypeKind::kUint   ? Source::kUint
                                               : Source::kInt;
  return {of, t.dtype().bits(), t.data(), t.stride()};
}

const void* row_of(const Tensor& t, int64_t r) { return static_cast<const char*>(t.data()) + r * t.stride(); }

void wide_product(const Tensor& a, const Tensor& b, bool b_k_major, const Tensor& y, uint32_t* flag) {
  const int64_t m = y.rows(), n = y.cols(), k = a.cols();
  if (!current_device().is_cpu()) {
    const maps::ExactProductRuns map{target_of(y, flag), {source_of(a), source_of(b), k, b_k_major}};
    return run_map(map, m * map.y.per_row());
  }
  parallel_ranges(m, kWideRows, [&](int64_t begin, int64_t end) {
    std::vector<WideSum> sums(static_cast<size_t>((end - begin) * n));
    std::vector<int64_t> lines(static_cast<size_t>((end - begin) * k)), line(static_cast<size_t>(b.cols()));
    for (int64_t i = begin; i < end; ++i) unpack_row(a.dtype(), row_of(a, i), 0, k, lines.data() + (i - begin) * k);
    for (int64_t r = 0; r < b.rows(); ++r) {
      unpack_row(b.dtype(), row_of(b, r), 0, b.cols(), line.data());
      for (int64_t i = 0; i < end - begin; ++i) {
        WideSum* out = sums.data() + i * n;
        const int64_t* x = lines.data() + i * k;
        if (b_k_major) {
          for (int64_t j = 0; j < n; ++j) out[j].add_product(x[r], line[static_cast<size_t>(j)]);
        } else {
          for (int64_t t = 0; t < k; ++t) out[r].add_product(x[t], line[static_cast<size_t>(t)]);
        }
      }
    }
    bool outside = false;
    for (int64_t i = begin; i < end; ++i) write_row(sums.data() + (i - begin) * n, n, y, i, outside);
    if (outside) raise_flag(flag, kFlagSaturated);
  });
}

// For codes: computes a block of rows in int64, then narrows it.
void narrowed_product(kernels::GemmArgs args, const Tensor& a, const Tensor& y, uint32_t* flag) {
  const int64_t step = std::max<int64_t>(1, kSumBlockElements / std::max<int64_t>(1, args.n)), m = args.m;
  const Workspace block(std::min(step, m) * args.n * static_cast<int64_t>(sizeof(int64_t)));
  args.c = block.as<int64_t>();
  args.c_dtype = dtypes::int64;
  args.ldc = args.n;
  for (int64_t r0 = 0; r0 < m; r0 += step) {
    args.m = std::min(step, m - r0);
    args.a.data = row_of(a, r0);
    kernels::gemm(args);
    if (!current_device().is_cpu()) {
      maps::ExactSumRuns map{target_of(y, flag), {block.as<int64_t>(), args.n}};
      map.y.data = static_cast<char*>(y.data()) + r0 * y.stride();
      run_map(map, args.m * map.y.per_row());
      continue;
    }
    parallel_ranges(args.m, 16, [&](int64_t begin, int64_t end) {
      bool outside = false;
      for (int64_t i = begin; i < end; ++i) write_row(block.as<int64_t>() + i * args.n, args.n, y, r0 + i, outside);
      if (outside) raise_flag(flag, kFlagSaturated);
    });
  }
}

template <typename Combine>
void exact_pointwise(const Tensor& a, const Tensor& b, bool product, const Tensor& y, uint32_t* flag, Combine combine) {
  const int64_t n = y.cols();
  if (!current_device().is_cpu()) {
    const maps::ExactPointRuns map{target_of(y, flag), {source_of(a), source_of(b), product}};
    return run_map(map, y.rows() * map.y.per_row());
  }
  parallel_ranges(y.rows(), std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(n);
    std::vector<int64_t> p(size), q(size);
    std::vector<Int128> out(size);
    bool outside = false;
    for (int64_t r = begin; r < end; ++r) {
      unpack_row(a.dtype(), row_of(a, r), 0, n, p.data());
      unpack_row(b.dtype(), row_of(b, r), 0, n, q.data());
      for (size_t j = 0; j < size; ++j) out[j] = combine(static_cast<Int128>(p[j]), static_cast<Int128>(q[j]));
      write_row(out.data(), n, y, r, outside);
    }
    if (outside) raise_flag(flag, kFlagSaturated);
  });
}

// int32, int64, int and uint codes, fp32.
bool exact_output(DType dtype) {
  const DTypeKind kind = dtype.kind();
  return dtype == dtypes::fp32 || kind == DTypeKind::kInt || kind == DTypeKind::kUint;
}

// y[i,j] = sum_k a[i,k] * b[j,k]; b_k_major: b is stored as [k,j]. Sets kFlagSaturated in flag, if given.
void exact_product(const Tensor& a, const Tensor& b, bool b_k_major, const Tensor& y, uint32_t* flag) {
  if (y.numel() == 0) return;
  if (!a.dtype().is_code() || !b.dtype().is_code()) return wide_product(a, b, b_k_major, y, flag);
  kernels::GemmArgs args = product_args(side_of(a, false), side_of(b, b_k_major), y.dtype());
  const double bound = static_cast<double>(args.k) * magnitude(a.dtype()) * magnitude(b.dtype());
  const bool fits = y.dtype() == dtypes::fp32 || y.dtype() == dtypes::int64 ||
                    (y.dtype() == dtypes::int32 && bound <= std::numeric_limits<int32_t>::max());
  if (!fits) return narrowed_product(args, a, y, flag);
  args.c = y.data();
  kernels::gemm(args);
}

// y = a * b, or a + b, for equal shapes.
void exact_mul(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  exact_pointwise(a, b, true, y, flag, [](Int128 p, Int128 q) { return p * q; });
}
void exact_add(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  exact_pointwise(a, b, false, y, flag, [](Int128 p, Int128 q) { return p + q; });
}

constexpr std::string_view kOutDtype = "out_dtype";

struct Inputs {
  Tensor a, b;
};

// ---- rules per op: shape of the result, forward, backward

Shape matmul_shape(const Tensor& a, const Tensor& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.cols() == b.rows(), kOutDtype, "matmul: got a ", a,
          ", b ", b, ", expected [m,k] and [k,n]");
  return {a.rows(), b.cols()};
}
void matmul_forward(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  exact_product(a, b, true, y, flag);
}

void product(const detail::Side& a, const detail::Side& b, GradSlot& slot) {
  kernels::GemmArgs args = product_args(a, b);
  gemm_into(args, slot);
}

void matmul_backward(const Inputs& s, const Tensor& g, std::span<GradSlot> slots) {
  if (slots[0].wanted()) product(side_of(g, false), side_of(s.b, false), slots[0]);
  if (slots[1].wanted()) product(side_of(s.a, true), side_of(g, true), slots[1]);
}

Shape linear_shape(const Tensor& a, const Tensor& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.cols() == b.cols(), kOutDtype, "linear: got a ", a,
          ", b ", b, ", expected [m,k] and [n,k]");
  return {a.rows(), b.rows()};
}
void linear_forward(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  exact_product(a, b, false, y, flag);
}
void linear_backward(const Inputs& s, const Tensor& g, std::span<GradSlot> slots) {
  if (slots[0].wanted()) product(side_of(g, false), side_of(s.b, true), slots[0]);
  if (slots[1].wanted()) product(side_of(g, true), side_of(s.a, true), slots[1]);
}

Shape same_shape(const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape(), kOutDtype, "shapes differ: got a ", a, ", b ", b, ", expected equal shapes");
  return a.shape();
}

// g times the values of t, each rounded once.
Tensor times_numbers(const Tensor& gradient, const Tensor& t) {
  const Tensor g = wide(gradient);
  Tensor out = Tensor::empty(g.shape(), dtypes::fp32);
  const int64_t n = t.cols();
  if (!current_device().is_cpu()) {
    run_map(maps::TimesIntegers{source_of(t), n, g.as<float>(), out.as<float>()}, t.numel());
    return out;
  }
  parallel_ranges(t.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* line = out.as<float>() + r * n;
      unpack_row(t.dtype(), static_cast<const char*>(t.data()) + r * t.stride(), 0, n, line);
      kernels::mul(n, g.as<float>() + r * n, line, line);
    }
  });
  return out;
}
void mul_backward(const Inputs& s, const Tensor& g, std::span<GradSlot> slots) {
  if (slots[0].wanted()) slots[0].set_rounded(times_numbers(g, s.b));
  if (slots[1].wanted()) slots[1].set_rounded(times_numbers(g, s.a));
}
void add_backward(const Inputs&, const Tensor& g, std::span<GradSlot> slots) {
  const Tensor wide_g = wide(g);
  for (GradSlot& slot : slots)
    if (slot.wanted()) slot.set_rounded(wide_g);
}

struct Rule {
  IntegerOp op;
  bool keeps;  // backward reads the operands
  Shape (*shape)(const Tensor& a, const Tensor& b);
  void (*forward)(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag);
  void (*backward)(const Inputs& s, const Tensor& g, std::span<GradSlot> slots);
};
constexpr Rule kRules[] = {
    {IntegerOp::matmul, true, matmul_shape, matmul_forward, matmul_backward},
    {IntegerOp::linear, true, linear_shape, linear_forward, linear_backward},
    {IntegerOp::mul, true, same_shape, exact_mul, mul_backward},
    {IntegerOp::add, false, same_shape, exact_add, add_backward},
};
const Rule& rule_of(IntegerOp op) {
  for (const Rule& rule : kRules)
    if (rule.op == op) return rule;
  fail_with(ErrorCode::kBug, kOutDtype, "internal error: unknown op ", static_cast<int>(op));
}

void check_operand(std::string_view name, const Tensor& t) {
  require(is_integer(t.dtype()), kOutDtype, name, ": got ", t, ", expected an int, uint or sign dtype");
  require(!t.quant(), kOutDtype, name, ' ', t, " has scales (", t.quant() ? t.quant()->scheme : "",
          "): out_dtype computes on bare codes. Use `linear` for values, or Tensor::without_quant.");
  require(t.layout() == layouts::canonical, kOutDtype, name, ' ', t, " is in layout ", t.layout(),
          ", expected canonical");
}

struct OutDType {
  static constexpr std::string_view kName = "out_dtype";
  struct Saved {
    const Rule* rule = nullptr;
    Inputs in;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, IntegerOp op, DType dtype, uint32_t* flag) {
    s.rule = &rule_of(op);
    check_operand("a", in[0]);
    check_operand("b", in[1]);
    require(exact_output(dtype), kOutDtype, "dtype of the result: got ", dtype,
            ", expected int32, int64, fp32, or an int or uint dtype of at most 8 bits");
    Tensor y = Tensor::empty(s.rule->shape(in[0], in[1]), dtype);
    s.rule->forward(in[0], in[1], y, flag);
    if (s.rule->keeps) s.in = {keep(in[0]), keep(in[1])};
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    s.rule->backward(s.in, gy[0], g);
  }
};

}  // namespace

Var out_dtype(IntegerOp op, DType dtype, const Var& a, const Var& b, uint32_t* flag) {
  return apply<OutDType>({a, b}, op, dtype, flag);
}

}  // namespace bitgrad
