// Codes of at most 8 bits go through family gemm, whose sums are exact in int64. Wider operands are summed here: a
// product of two int64 has up to 126 bits, so sums are kept in two parts, high * 2^64 + low.
#include "ops/out_dtype_exact.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad::detail {
namespace {

__extension__ using Int128 = __int128;

constexpr int64_t kBlockElements = 1 << 17;  // int64 sums of a block of rows: 1 MiB
constexpr int64_t kWideRows = 8;             // rows of a block of wide sums

// high * 2^64 + low, both parts sums of many.
struct WideSum {
  Int128 high = 0, low = 0;
  void add_product(int64_t a, int64_t b) {
    const Int128 p = static_cast<Int128>(a) * b;
    high += p >> 64;
    low += static_cast<uint64_t>(p);
  }
};

int64_t clamped(Int128 x, int64_t lo, int64_t hi, bool& outside) {
  outside = outside || x < lo || x > hi;
  return static_cast<int64_t>(std::clamp<Int128>(x, lo, hi));
}
int64_t clamped(int64_t x, int64_t lo, int64_t hi, bool& outside) {
  outside = outside || x < lo || x > hi;
  return std::clamp(x, lo, hi);
}
int64_t clamped(const WideSum& x, int64_t lo, int64_t hi, bool& outside) {
  const Int128 high = x.high + (x.low >> 64);
  const auto low = static_cast<uint64_t>(x.low);
  if (high < -1 || high > 0) {
    outside = true;
    return high < 0 ? lo : hi;
  }
  return clamped(high * (static_cast<Int128>(1) << 64) + low, lo, hi, outside);
}

float rounded(Int128 x) { return static_cast<float>(x); }
float rounded(int64_t x) { return static_cast<float>(x); }
float rounded(const WideSum& x) {
  constexpr Int128 kSmall = static_cast<Int128>(1) << 62;
  const Int128 high = x.high + (x.low >> 64);
  const auto low = static_cast<uint64_t>(x.low);
  if (high > -kSmall && high < kSmall) return rounded(high * (static_cast<Int128>(1) << 64) + low);
  // The low part can only break a tie: one odd bit does the same.
  return std::ldexp(static_cast<float>(low != 0 ? high | 1 : high), 64);
}

// Row r of y from n exact numbers.
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

const void* row_of(const Tensor& t, int64_t r) { return static_cast<const char*>(t.data()) + r * t.stride(); }

void wide_product(const Tensor& a, const Tensor& b, bool b_k_major, const Tensor& y, uint32_t* flag) {
  const int64_t m = y.rows(), n = y.cols(), k = a.cols();
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

// Codes: a block of rows in int64, then narrowed.
void narrowed_product(GemmArgs args, const Tensor& a, const Tensor& y, uint32_t* flag) {
  const int64_t step = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, args.n)), m = args.m;
  const Workspace block(std::min(step, m) * args.n * static_cast<int64_t>(sizeof(int64_t)));
  args.c = block.as<int64_t>();
  args.c_dtype = dtypes::int64;
  args.ldc = args.n;
  for (int64_t r0 = 0; r0 < m; r0 += step) {
    args.m = std::min(step, m - r0);
    args.a.data = row_of(a, r0);
    gemm(args);
    parallel_ranges(args.m, 16, [&](int64_t begin, int64_t end) {
      bool outside = false;
      for (int64_t i = begin; i < end; ++i) write_row(block.as<int64_t>() + i * args.n, args.n, y, r0 + i, outside);
      if (outside) raise_flag(flag, kFlagSaturated);
    });
  }
}

template <typename Combine>
void pointwise(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag, Combine combine) {
  const int64_t n = y.cols();
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

}  // namespace

bool exact_output(DType dtype) {
  const DTypeKind kind = dtype.kind();
  return dtype == dtypes::fp32 || kind == DTypeKind::kInt || kind == DTypeKind::kUint;
}

void exact_product(const Tensor& a, const Tensor& b, bool b_k_major, const Tensor& y, uint32_t* flag) {
  if (y.numel() == 0) return;
  if (!a.dtype().is_code() || !b.dtype().is_code()) return wide_product(a, b, b_k_major, y, flag);
  GemmArgs args;
  args.m = y.rows();
  args.n = y.cols();
  args.k = a.cols();
  args.a = gemm_operand(a, false);
  args.b = gemm_operand(b, b_k_major);
  const double bound = static_cast<double>(args.k) * magnitude(a.dtype()) * magnitude(b.dtype());
  const bool fits = y.dtype() == dtypes::fp32 || y.dtype() == dtypes::int64 ||
                    (y.dtype() == dtypes::int32 && bound <= std::numeric_limits<int32_t>::max());
  if (!fits) return narrowed_product(args, a, y, flag);
  args.c = y.data();
  args.c_dtype = y.dtype();
  args.ldc = y.cols();
  gemm(args);
}

void exact_mul(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  pointwise(a, b, y, flag, [](Int128 p, Int128 q) { return p * q; });
}
void exact_add(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  pointwise(a, b, y, flag, [](Int128 p, Int128 q) { return p + q; });
}

}  // namespace bitgrad::detail
