// Small tensors of random values that are the same on every run.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::test {

// Values that the dtype can represent: floats in [lo, hi), codes from the whole range.
inline std::vector<double> random_numbers(DType dtype, int64_t n, uint64_t seed, double lo = -1, double hi = 1) {
  const RandomStream draws{seed, Purpose::kUser, dtype.id(), 0};
  const DTypeInfo& info = dtype.info();
  std::vector<double> out(static_cast<size_t>(n));
  PhiloxBlock four{};
  for (int64_t i = 0; i < n; ++i) {
    double& v = out[static_cast<size_t>(i)];
    if (i % 4 == 0) four = draws.block(static_cast<uint64_t>(i) / 4);
    const uint32_t r = four[static_cast<size_t>(i % 4)];  // draws.bits32(i)
    if (info.kind == DTypeKind::kFloat) {
      v = lo + (hi - lo) * static_cast<double>(static_cast<float>(r >> 8) * 0x1p-24f);  // draws.uniform(i)
      continue;
    }
    if (info.kind == DTypeKind::kSign)
      v = r % 2 ? 1 : -1;
    else if (info.kind == DTypeKind::kCodebook)
      v = info.levels[r % info.levels.size()];
    else if (dtype.bits() > 8)
      v = static_cast<double>(r % 2001) - 1000;
    else
      v = static_cast<double>(info.qmin + static_cast<int64_t>(r % static_cast<uint32_t>(info.qmax - info.qmin + 1)));
  }
  return out;
}

inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, double lo = -1, double hi = 1) {
  return Tensor::from_elements(shape, dtype, random_numbers(dtype, shape.numel(), seed, lo, hi));
}

enum class ZeroKind { kNone, kInteger, kReal };

// Codes from the whole range with scales in [0.25, 1.25), and zero points in [-3, 3] or offsets in [-1, 1).
inline Tensor random_codes(const Shape& shape, DType dtype, uint64_t seed, const Granularity& granularity = {},
                           ZeroKind zero = ZeroKind::kNone) {
  const Tensor codes = random_tensor(shape, dtype, seed);
  const int64_t count = scale_count(granularity, shape.rows(), shape.cols());
  const auto shared = [](Tensor t) { return std::make_shared<const Tensor>(std::move(t)); };
  QuantParams params;
  params.scheme = "made";
  params.granularity = granularity;
  params.scale = shared(random_tensor({count}, dtypes::fp32, seed + 1, 0.25, 1.25));
  if (zero == ZeroKind::kInteger) {
    std::vector<double> z = random_numbers(dtypes::fp32, count, seed + 2, -3, 3);
    for (double& v : z) v = std::rint(v);
    params.zero = shared(Tensor::from_elements({count}, dtypes::int32, z));
  }
  if (zero == ZeroKind::kReal) params.offset = shared(random_tensor({count}, dtypes::fp32, seed + 3));
  return codes.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

// Code dtypes (at most 8 bits), built in and registered so far.
inline std::vector<DType> code_dtypes() {
  std::vector<DType> out;
  for (const DType d : all_dtypes())
    if (d.is_code()) out.push_back(d);
  return out;
}

// Raw bits, so that -0 differs from 0 and a NaN equals itself.
inline std::vector<uint32_t> bits_of(const Tensor& t) {
  std::vector<uint32_t> out;
  for (const double v : t.elements()) out.push_back(std::bit_cast<uint32_t>(static_cast<float>(v)));
  return out;
}

}  // namespace bitgrad::test
