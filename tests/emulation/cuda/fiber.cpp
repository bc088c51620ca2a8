#include "emulation/cuda/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "bitgrad/base/error.h"

#if BITGRAD_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if BITGRAD_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
extern "C" void bitgrad_fiber_switch(void** save, void* load);
asm(R"(
.pushsection .text
.p2align 4
.globl bitgrad_fiber_switch
.hidden bitgrad_fiber_switch
.type bitgrad_fiber_switch, @function
bitgrad_fiber_switch:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  notrack jmp *%rcx  # not ret: the processor expects one to return to the last call
.size bitgrad_fiber_switch, .-bitgrad_fiber_switch
.popsection
)");
#endif

namespace bitgrad::cuda::emulation {
namespace {

// Stacks start at the same place of a page, so their first lines would share few sets of the first cache. They start at
// one of 32 places instead, by their place in memory.
constexpr size_t kPlaces = 32, kPlaceBytes = 128;

// More than the frames of entry and the switch at its end, wherever the stack starts.
[[maybe_unused]] constexpr size_t kEntryBytes = 8192 + kPlaces * kPlaceBytes;

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

StackPool::~StackPool() {
  for (void* stack : free_) munmap(static_cast<char*>(stack) - page_bytes(), kBytes + page_bytes());
}

void* StackPool::acquire() {
  if (!free_.empty()) {
    void* const stack = free_.back();
    free_.pop_back();
    return stack;
  }
  const size_t guard = page_bytes();
  void* const base =
      mmap(nullptr, kBytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) fail_with(ErrorCode::kMemory, "cuda emulation", "no memory for the stack of a thread.");
  mprotect(base, guard, PROT_NONE);
  return static_cast<char*>(base) + guard;
}

void fiber_prepare(FiberContext& fiber, void* stack, void (*entry)()) {
  const size_t place = reinterpret_cast<uintptr_t>(stack) / (StackPool::kBytes + page_bytes()) % kPlaces;
  const size_t bytes = StackPool::kBytes - place * kPlaceBytes;
  fiber.bottom = stack;
  fiber.bytes = bytes;
  fiber.fake_stack = nullptr;
#if BITGRAD_FIBER_ASAN
  // Frames of the thread that had the stack before: those that returned have cleared their marks, entry never returns.
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(stack) + StackPool::kBytes - kEntryBytes, kEntryBytes);
#endif
#if BITGRAD_FIBER_TSAN
  fiber.tsan = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
  // Six registers, the address of entry, and a word that makes the stack pointer 8 modulo 16 at entry, as after a call.
  void** const top = reinterpret_cast<void**>(static_cast<char*>(stack) + bytes);
  void** const start = top - 8;
  for (int i = 0; i < 8; ++i) start[i] = nullptr;
  start[6] = reinterpret_cast<void*>(entry);
  fiber.stack_pointer = start;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#endif
}

void fiber_switch(FiberContext& from, FiberContext& to, [[maybe_unused]] bool last) {
#if BITGRAD_FIBER_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.bottom, to.bytes);
#endif
#if BITGRAD_FIBER_TSAN
  if (from.tsan == nullptr) from.tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.tsan, 0);
#endif
#if defined(__x86_64__)
  bitgrad_fiber_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
#if BITGRAD_FIBER_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void fiber_entered([[maybe_unused]] FiberContext& back) {
#if BITGRAD_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &back.bottom, &back.bytes);
#endif
}

void fiber_discard([[maybe_unused]] FiberContext& fiber) {
#if BITGRAD_FIBER_TSAN
  if (fiber.tsan != nullptr) __tsan_destroy_fiber(fiber.tsan);
  fiber.tsan = nullptr;
#endif
}

}  // namespace bitgrad::cuda::emulation
