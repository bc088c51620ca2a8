// Termination of a process whose exception no handler could catch.

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "bitgrad/base/error.h"

namespace bitgrad::cli {
namespace {

// Does not allocate.
[[noreturn]] void end(const char* text, ErrorCode code) noexcept {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(static_cast<int>(code));
}

bool memory_is_left() noexcept {
  void* const block = std::malloc(4096);
  std::free(block);
  return block != nullptr;
}

// Whether the uncaught exception means that memory is exhausted. If the runtime had no memory to create one, there is
// none.
bool is_memory() noexcept {
  if (!std::current_exception()) return !memory_is_left();
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kMemory;
  } catch (...) {
    return false;
  }
}

// The action of std::terminate, installed before the first static object is constructed. A failed allocation (in a
// destructor, a library's thread, an initializer) ends the process with exit code 4 and a message, anything else with
// 70. Files of a run are replaced atomically (base/file.h), so they stay intact.
[[noreturn]] void end_without_handler() noexcept {
  if (is_memory()) end("error: out of memory\n", ErrorCode::kMemory);
  end("error: this is a bug in bitgrad, please report it: an exception that nothing caught\n", ErrorCode::kBug);
}

// The loader calls the functions in this section before any initializer of the program and its libraries (System V ABI,
// DT_PREINIT_ARRAY). Sanitizers are not ready that early; with them, an initializer installs the handler.
void install() { std::set_terminate(end_without_handler); }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
[[gnu::constructor]] void install_late() { install(); }
#else
[[gnu::section(".preinit_array"), gnu::used]] void (*install_early)() = install;
#endif
}  // namespace
}  // namespace bitgrad::cli
