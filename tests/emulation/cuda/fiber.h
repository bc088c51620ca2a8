// Flows of control with their own stacks that run until they yield. Switching uses custom code on x86-64 (saving the
// callee-saved registers) and ucontext elsewhere; AddressSanitizer and ThreadSanitizer are notified.
#pragma once

#include <cstddef>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define BITGRAD_FIBER_ASAN 1
#else
#define BITGRAD_FIBER_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define BITGRAD_FIBER_TSAN 1
#else
#define BITGRAD_FIBER_TSAN 0
#endif

namespace bitgrad::cuda::emulation {

// The saved state of a suspended flow of control.
struct FiberContext {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  void* fake_stack = nullptr;    // AddressSanitizer's fake stack
  const void* bottom = nullptr;  // stack bounds, for AddressSanitizer
  size_t bytes = 0;
  void* tsan = nullptr;  // ThreadSanitizer's fiber
};

// Stacks with a guard page below, cached for later fibers in last-in, first-out order.
class StackPool {
 public:
  static constexpr size_t kBytes = size_t{BITGRAD_FIBER_ASAN ? 512 : 128} << 10;
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool();
  void* acquire();  // lowest usable address
  void release(void* stack) { free_.push_back(stack); }

 private:
  std::vector<void*> free_;
};

// Prepares `fiber` to start at entry() on the stack when it is first switched to. entry must not return: it ends with
// fiber_switch(..., true).
void fiber_prepare(FiberContext& fiber, void* stack, void (*entry)());
// Suspends `from` (last: for good) and continues `to`.
void fiber_switch(FiberContext& from, FiberContext& to, bool last = false);
// Must be the first call of entry(); `back` is the context that the fiber returns to.
void fiber_entered(FiberContext& back);
void fiber_discard(FiberContext& fiber);

}  // namespace bitgrad::cuda::emulation
