// Parallel loops. Work is partitioned by shape, never by thread count; threads only pick up chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "bitgrad/base/device.h"

namespace bitgrad {

// Number of threads that parallel_for uses, 1 to 1024. Defaults to the number of cores in the affinity mask. If the
// system refuses to create that many, it falls to the number that exist and a warning is logged. Throws Error if n is
// out of range.
void set_num_threads(int n);
int num_threads();
int available_cores();

namespace detail {
void parallel_for_impl(int64_t chunks, void (*call)(void*, int64_t), void* context);
}

// Calls body(chunk) once for each chunk in [0, chunks), in any order and on any thread. If bodies throw, the exception
// of the lowest chunk is rethrown here, so that the error does not depend on scheduling; chunks not yet started are
// then skipped. Nested calls run inline. Bodies run in the default floating-point mode (round to nearest, FTZ and DAZ
// off), whatever the mode of the caller. On a device other than the CPU, all chunks run in order on the calling thread.
template <typename Body>
void parallel_for(int64_t chunks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel_for_impl(
      chunks, [](void* c, int64_t i) { (*static_cast<Plain*>(c))(i); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

// Splits `total` items into ranges of `grain` items and calls body(begin, end) for each. A single range runs inline. On
// a device other than the CPU there is one range, since the kernels that the body calls partition their own work.
template <typename Body>
void parallel_ranges(int64_t total, int64_t grain, Body&& body) {
  if (total <= 0) return;
  if (total <= grain || !current_device().is_cpu()) {
    body(int64_t{0}, total);
    return;
  }
  parallel_for((total + grain - 1) / grain, [&](int64_t c) {
    const int64_t end = (c + 1) * grain;
    body(c * grain, end < total ? end : total);
  });
}

}  // namespace bitgrad
