// Keeps exceptions inside the C interface: they become an error code and this thread's error text. And its open
// handles.
#pragma once

#include <cxxabi.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
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

// The open handles of the C interface. A call keeps the object of its handle alive: close only takes the handle away,
// and the last call at work frees the object. A pointer that is no open handle of its kind is an error, never followed.

template <typename T>
class Handles {
 public:
  T* add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    T* const handle = object.get();
    open_[handle] = std::move(object);
    return handle;
  }
  // Throws Error if it is not open.
  std::shared_ptr<T> get(const T* handle, std::string_view what) {
    require(handle != nullptr, "c", what, ": got NULL");
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(handle);
    require(found != open_.end(), "c", what, ": got a handle that is closed, or of another kind");
    return found->second;
  }
  // nullptr: it was not open.
  std::shared_ptr<T> remove(const T* handle) {
    const std::lock_guard lock(mutex_);
    const auto node = open_.extract(handle);
    return node.empty() ? nullptr : node.mapped();
  }

 private:
  std::mutex mutex_;
  std::map<const T*, std::shared_ptr<T>> open_;
};

// Never destroyed: threads may be at work while the process ends.
template <typename T>
Handles<T>& handles() {
  static auto* const instance = new Handles<T>;
  return *instance;
}

// An object that one thread may use at a time: T::busy is locked for the lifetime. Calls within callbacks of the same
// thread may use it too.
template <typename T>
class Exclusive {
 public:
  Exclusive(const T* handle, std::string_view what)
      : object_(handles<T>().get(handle, what)), lock_(object_->busy, std::try_to_lock) {
    require(lock_.owns_lock(), "c", what, ": another thread is using it. Use it from one thread at a time");
  }
  T& operator*() const { return *object_; }

 private:
  std::shared_ptr<T> object_;
  std::unique_lock<std::recursive_mutex> lock_;
};

// Calls f with the object of a handle, which is in use until it returns; errors as guarded.
template <typename T, typename F>
int alone(const T* handle, std::string_view what, F&& f) noexcept {
  return guarded([&] {
    const Exclusive<T> used(handle, what);
    f(*used);
  });
}

}  // namespace bitgrad::capi
