// Codes of at most 8 bits use family gemm, whose sums are exact in int64. Wider operands are summed here: a product of
// two int64 has up to 126 bits, so sums are kept in two parts, high * 2^64 + low.
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
#include "ops/product/operand.h"

namespace bitgrad::detail {
namespace {

using namespace maps::exact;

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

const void* row_of(const Tensor& t, int64_t r) { return static_cast<const char*>(t.data()) + r * t.stride(); }

void wide_product(const Tensor& a, const Tensor& b, bool b_k_major, const Tensor& y, uint32_t* flag) {
  const int64_t m = y.rows(), n = y.cols(), k = a.cols();
  if (!current_device().is_cpu()) {
    const maps::ExactProductRuns map{target_of(y, flag), {exact_source(a), exact_source(b), k, b_k_major}};
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
    const maps::ExactPointRuns map{target_of(y, flag), {exact_source(a), exact_source(b), product}};
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

}  // namespace

maps::exact::Source exact_source(const Tensor& t) {
  const DTypeKind kind = t.dtype().kind();
  const auto of = t.dtype() == dtypes::int64   ? Source::kInt64
                  : t.dtype() == dtypes::int32 ? Source::kInt32
                  : kind == DTypeKind::kSign   ? Source::kSign
                  : kind == DTypeKind::kUint   ? Source::kUint
                                               : Source::kInt;
  return {of, t.dtype().bits(), t.data(), t.stride()};
}

bool exact_output(DType dtype) {
  const DTypeKind kind = dtype.kind();
  return dtype == dtypes::fp32 || kind == DTypeKind::kInt || kind == DTypeKind::kUint;
}

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

void exact_mul(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  exact_pointwise(a, b, true, y, flag, [](Int128 p, Int128 q) { return p * q; });
}
void exact_add(const Tensor& a, const Tensor& b, const Tensor& y, uint32_t* flag) {
  exact_pointwise(a, b, false, y, flag, [](Int128 p, Int128 q) { return p + q; });
}

}  // namespace bitgrad::detail
