// Maps: a functor called for every index, on the current device. What would be a loop over elements (or over rows, each
// a short loop) in an op, a quantizer or an optimizer is a struct of pointers and numbers with
//
//   BITGRAD_HD void operator()(int64_t i) const;
//
// in src/<layer>/map/<thing>.h, namespace bitgrad::maps, with its line in the list of its layer, <layer>/map/maps.inc.
// The layer is the one whose code runs it, or kernels where several do. The CPU runs it as a loop made at the call; a
// device runs the kernel that it made of the same source (cuda/kernels/map/<layer>.cu). Calls are independent of one
// another and of their order: no two write one place. Functors are trivially copyable, pointers are of the current
// device, and they may only call BITGRAD_HD functions.
#pragma once

#include <string_view>
#include <type_traits>

#include "bitgrad/base/host_device.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/kernel_table.h"

// What a line BITGRAD_MAP(functor) of a maps.inc declares: <layer>/map/list.h.
#define BITGRAD_DECLARE_MAP(functor)                                \
  namespace bitgrad::maps {                                         \
  struct functor;                                                   \
  }                                                                 \
  template <>                                                       \
  struct bitgrad::detail::MapLine<bitgrad::maps::functor> {         \
    static constexpr std::string_view kName = "map_" #functor;      \
    using Run = void (*)(const bitgrad::maps::functor&, int64_t n); \
    static inline Run runs[bitgrad::kDeviceKinds] = {};             \
  };

namespace bitgrad {

namespace detail {
// What the line of a functor says: its name, and for each kind of device but the CPU the kernel that runs it, which
// copies the functor. The device's backend sets it when it registers (cuda/kernels/map/map_kernel.h).
template <typename F>
struct MapLine;
template <typename F>
inline constexpr bool kHasMapLine = requires {
  MapLine<F>::kName;
};
}  // namespace detail

inline constexpr int64_t kMapGrain = 16384;

// f(0) .. f(n-1). `grain`: indices of one piece of work on the CPU (fewer where one call is long).
template <typename F>
void run_map(const F& f, int64_t n, int64_t grain = kMapGrain) {
  static_assert(std::is_trivially_copyable_v<F>, "a device gets a copy of the bytes");
  static_assert(detail::kHasMapLine<F>, "a functor needs a line in the maps.inc of its layer: every device runs it");
  if (n <= 0) return;
  if (const Device device = current_device(); !device.is_cpu()) {
    const auto run = detail::MapLine<F>::runs[static_cast<size_t>(device.kind)];
    return detail::present(run, detail::MapLine<F>::kName)(f, n);
  }
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
