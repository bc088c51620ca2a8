// Named ranges of time for a profiler: the ops of a tape, forward and backward, and the stages of a training step.
#pragma once

#include <atomic>
#include <string_view>

namespace bitgrad {

// What is told of ranges, which nest on each thread. BITGRAD_NVTX=1 sets that of Nsight Systems in a build with CUDA.
struct Profiler {
  void (*begin)(std::string_view name) = nullptr;
  void (*end)() = nullptr;  // of the range that the thread began last
};

namespace detail {
inline std::atomic<const Profiler*> g_profiler{nullptr};
// Warns once if BITGRAD_NVTX asks for a profiler that this build does not have.
void warn_without_profiler();
}  // namespace detail

// nullptr: none. `profiler` must outlive all ranges.
inline void set_profiler(const Profiler* profiler) { detail::g_profiler = profiler; }

// A range from here to the end of the scope. Without a profiler it costs one load.
class ProfileRange {
 public:
  explicit ProfileRange(std::string_view name) : profiler_(detail::g_profiler.load(std::memory_order_relaxed)) {
    if (profiler_ != nullptr) profiler_->begin(name);
  }
  ~ProfileRange() {
    if (profiler_ != nullptr) profiler_->end();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  const Profiler* profiler_;
};

}  // namespace bitgrad
