// Parallel loops. Work is cut by shape, never by the number of threads; threads only choose who computes a chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "bitgrad/base/device.h"

namespace bitgrad {

// Threads that parallel_for uses: 1 .. 1024. The default is the number of cores that the affinity mask allows. Where
// the system does not give that many, the number falls to those there are, with a warning in the log.
void set_num_threads(int n);
int num_threads();
int available_cores();

namespace detail {
void parallel_for_impl(int64_t chunks, void (*call)(void*, int64_t), void* context);
}

// Calls body(chunk) for chunk = 0 .. chunks-1, each once, in any order, on any thread. Of the exceptions the one of the
// lowest chunk is rethrown here (so the error does not depend on the threads); chunks not yet started are then left
// out. Nested calls run inline. Bodies run with the default floating-point mode (round to nearest, FTZ and DAZ off),
// whatever the caller's is. On a device other than the CPU all chunks run in order on the calling thread.
template <typename Body>
void parallel_for(int64_t chunks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel_for_impl(
      chunks, [](void* c, int64_t i) { (*static_cast<Plain*>(c))(i); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

// Calls body(begin, end) for the ranges of `total` items cut every `grain`. One range runs inline. On a device other
// than the CPU the whole is one range: the kernels that the body asks for cut their own work.
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
