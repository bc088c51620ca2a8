// Random integer products through one row of the device, against sums of 128 bits with ==.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cuda/device_array.h"
#include "cuda/on_device.h"
#include "support/catch.h"
#include "support/gemm_int_problem.h"

namespace bitgrad::test {

// `count` random products through one row; pairs it does not take are passed over, unless `all` must be taken.
inline void check_cuda_row(const std::string& name, Shape (*shape_of)(Rng&), int count, uint64_t seed,
                           const std::vector<std::pair<DType, DType>>& pairs, bool general, bool offsets = false) {
  Rng rng(seed);
  const kernels::GemmKernel kernel = on_device(cuda_kernel(name));
  {
    const DeviceGuard guard(Device::cuda());
    if (skipped_without_on_device(kernel.needs)) return;
  }
  int taken = 0;
  for (int i = 0; i < 4 * count && taken < count; ++i) {
    const auto [da, db] = pairs[static_cast<size_t>(uniform_int(rng, 0, static_cast<int64_t>(pairs.size()) - 1))];
    const Shape shape = shape_of(rng);
    Case t;
    make_case(rng, t, da, db, shape, general);
    std::vector<float> offset_a(static_cast<size_t>(shape.m), -0.75f), offset_b(static_cast<size_t>(shape.n), 1.25f);
    const bool real = offsets && (t.args.c_dtype == dtypes::fp32 || t.args.c_dtype == dtypes::bf16);
    if (real) {
      t.args.row_minus = nullptr;
      if (t.args.a.scale.zero == nullptr) t.args.a.scale.offset = offset_a.data();
      if (t.args.b.scale.zero == nullptr) t.args.b.scale.offset = offset_b.data();
    }
    const std::vector<int64_t> a = reference_codes(t.args.a, shape.m, shape.k);
    const std::vector<int64_t> b = reference_codes(t.args.b, shape.n, shape.k);
    kernels::GemmArgs args = t.args;
    if (!kernel.supports(args)) continue;
    ++taken;
    derive(rng, args.a, kernel.a_layout, shape.m, shape.k, t.derived_a);
    derive(rng, args.b, kernel.b_layout, shape.n, shape.k, t.derived_b);
    INFO(name << " on " << da << " x " << db << ", m " << shape.m << " n " << shape.n << " k " << shape.k << " to "
              << args.c_dtype << ", k-major " << args.a.k_major << args.b.k_major);
    if (real && (args.a.scale.offset != nullptr || args.b.scale.offset != nullptr)) {
      CHECK(wrong_elements(rng, kernel, args, [&](int64_t r, int64_t c, uint64_t old) {
              return reference_offsets<float>(args, r, c, a.data() + r * shape.k, b.data() + c * shape.k, old);
            }) == 0);
    } else {
      CHECK(wrong_elements(rng, kernel, args, a, b) == 0);
    }
  }
  CHECK(taken == count);
}

inline std::vector<std::pair<DType, DType>> pairs_of(const std::vector<DType>& a, const std::vector<DType>& b) {
  std::vector<std::pair<DType, DType>> pairs;
  for (const DType x : a)
    for (const DType y : b) pairs.emplace_back(x, y);
  return pairs;
}
inline std::vector<DType> small_integers() {
  std::vector<DType> list;
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) list.push_back(d);
  return list;
}

}  // namespace bitgrad::test
