// Keeps exceptions inside the C interface: they become an error code and this thread's error text.
#pragma once

#include <cxxabi.h>

#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/c.h"

namespace bitgrad::capi {

void set_last_error(std::string_view text) noexcept;

// One-time setup per process, as in bitgrad's own programs: loads kernel costs measured on this machine.
void prepare_process();

template <typename F>
int guarded(F&& f) noexcept {
  try {
    f();
    return BITGRAD_OK;
  } catch (const Error& e) {
    set_last_error(e.what());
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return BITGRAD_E_MEMORY;
  } catch (const std::system_error& e) {
    set_last_error(e.what());
    return BITGRAD_E_MEMORY;
  } catch (const std::exception& e) {
    set_last_error(e.what());
  } catch (...) {
    set_last_error("an exception that is not a std::exception");
  }
  return BITGRAD_E_BUG;
}

// Calls code of the program. A thread that the program's run-time ends within it (Python 3.9 to 3.13 do so at exit)
// stays where it is: nothing may be freed below a process that ends.
template <typename F>
auto call_program(F&& f) {
#if defined(__GLIBCXX__)
  try {
    return f();
  } catch (abi::__forced_unwind&) {
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
#else
  return f();
#endif
}

// Dereferences a required argument; throws Error if it is NULL.
template <typename T>
T& given(T* pointer, std::string_view what) {
  require(pointer != nullptr, "c", what, ": got NULL");
  return *pointer;
}

inline std::vector<std::string> texts(const char* const* words, int32_t count, std::string_view what) {
  require(count == 0 || (count > 0 && words != nullptr), "c", what,
          count < 0 ? ": got a negative number" : ": got NULL");
  std::vector<std::string> out;
  for (int32_t i = 0; i < count; ++i) out.emplace_back(&given(words[i], what));
  return out;
}

}  // namespace bitgrad::capi
