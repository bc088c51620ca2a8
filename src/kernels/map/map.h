// Maps: a functor called for every index, on the current device. Where an op, a quantizer or an optimizer would loop
// over elements (or over rows, each a short loop), it defines a struct of pointers and values with
//
//   BITGRAD_HD void operator()(int64_t i) const;
//
// in src/<layer>/map/<thing>.h, namespace bitgrad::maps, and adds a line to the list of its layer,
// <layer>/map/maps.inc. The layer is the one whose code runs the map, or kernels if several do. The CPU runs it as a
// loop that is instantiated at the call; a device runs a kernel compiled from the same source
// (cuda/kernels/map/layer.cu.in). Calls are independent of one another and of their order: no two write to the same
// place. Functors are trivially copyable, their pointers belong to the current device, and they may call only
// BITGRAD_HD functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "bitgrad/base/device.h"
#include "bitgrad/base/parallel.h"
#include "kernels/device_kernel.h"

// The declaration made by a line BITGRAD_MAP(functor) of a maps.inc; see <layer>/map/list.h.
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
// What a functor's line declares: its name, and for each kind of device except the CPU the kernel that runs it, which
// copies the functor. The device's backend sets the kernel when it registers (cuda/kernels/map/map_kernel.h).
template <typename F>
struct MapLine;
template <typename F>
inline constexpr bool kHasMapLine = requires {
  MapLine<F>::kName;
};
}  // namespace detail

inline constexpr int64_t kMapGrain = 16384;
// Rows of `cols` elements per task of a map over rows.
inline int64_t rows_per_task(int64_t cols) { return std::max<int64_t>(1, kMapGrain / std::max<int64_t>(1, cols)); }

// Calls f(0) .. f(n-1). `grain`: indices per task on the CPU (fewer if single calls are long).
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

// ORs bits into a flag word from a functor; no-op if flags is null.
BITGRAD_HD inline void or_flag(uint32_t* flags, uint32_t bits) {
  if (flags == nullptr) return;
#if defined(__CUDA_ARCH__)
  atomicOr(flags, bits);
#else
  __atomic_fetch_or(flags, bits, __ATOMIC_RELAXED);
#endif
}

}  // namespace bitgrad
