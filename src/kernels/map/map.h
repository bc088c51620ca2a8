// Maps: a functor called for every index, on the current device. What would be a loop over elements (or over rows, each
// a short loop) in an op, a quantizer or an optimizer is a struct of pointers and numbers with
//
//   BITGRAD_HD void operator()(int64_t i) const;
//
// in src/kernels/map/<thing>.h, namespace bitgrad::maps, with its line in maps.inc and its header in all.h. The CPU
// runs it as a loop made at the call; a device runs the kernel that it made of the same source. Calls are independent
// of one another and of their order: no two write one place. Functors are trivially copyable, pointers are of the
// current device, and they may only call BITGRAD_HD functions.
#pragma once

#include <type_traits>

#include "bitgrad/base/host_device.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/device_kernels.h"

namespace bitgrad {

namespace maps {
#define BITGRAD_MAP(functor) struct functor;
#include "kernels/map/maps.inc"
#undef BITGRAD_MAP
}  // namespace maps

namespace detail {
enum MapId : int {
#define BITGRAD_MAP(functor) kMap##functor,
#include "kernels/map/maps.inc"
#undef BITGRAD_MAP
  kMapCount
};
template <typename F>
struct MapIdOf;  // a functor without a line in maps.inc
#define BITGRAD_MAP(functor)                    \
  template <>                                   \
  struct MapIdOf<maps::functor> {               \
    static constexpr int value = kMap##functor; \
  };
#include "kernels/map/maps.inc"
#undef BITGRAD_MAP
}  // namespace detail

inline constexpr int64_t kMapGrain = 16384;

// f(0) .. f(n-1). `grain`: indices of one piece of work on the CPU (fewer where one call is long).
template <typename F>
void run_map(const F& f, int64_t n, int64_t grain = kMapGrain) {
  static_assert(std::is_trivially_copyable_v<F>);
  if (n <= 0) return;
  if (const DeviceKernels* k = device_kernels())
    return detail::present(k->map, "map")(detail::MapIdOf<F>::value, &f, n);
  parallel_ranges(n, grain, [&](int64_t begin, int64_t end) {
    const F local = f;
    for (int64_t i = begin; i < end; ++i) local(i);
  });
}

// ORs bits into a flag word from a functor; nothing to do without one.
BITGRAD_HD inline void or_flag(uint32_t* flags, uint32_t bits) {
  if (flags == nullptr) return;
#if defined(__CUDA_ARCH__)
  atomicOr(flags, bits);
#else
  __atomic_fetch_or(flags, bits, __ATOMIC_RELAXED);
#endif
}

}  // namespace bitgrad
