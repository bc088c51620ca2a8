// A stack of its own that runs until it gives way. Switching: own code on x86-64 (the callee-saved registers), ucontext
// elsewhere; AddressSanitizer and ThreadSanitizer are told.
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

// Where a flow of control stands while another runs.
struct FiberContext {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  void* fake_stack = nullptr;    // AddressSanitizer's
  const void* bottom = nullptr;  // of the stack, for AddressSanitizer
  size_t bytes = 0;
  void* tsan = nullptr;  // ThreadSanitizer's
};

// Stacks with a page that faults below them, kept for the next fiber: the last one used is the next one given.
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

// Makes `fiber` begin at entry() on the stack when it is switched to first. entry never returns: it ends by
// fiber_switch(..., true).
void fiber_prepare(FiberContext& fiber, void* stack, void (*entry)());
// Leaves `from` (last: for good) and goes on in `to`.
void fiber_switch(FiberContext& from, FiberContext& to, bool last = false);
// The first thing that entry() does; `back` is the context that the fiber returns to.
void fiber_entered(FiberContext& back);
void fiber_discard(FiberContext& fiber);

}  // namespace bitgrad::cuda::emulation
