// The open handles of the C interface. A call keeps the object of its handle alive: close only takes the handle away,
// and the last call at work frees the object. A pointer that is no open handle of its kind is an error, never followed.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "bitgrad/base/error.h"

namespace bitgrad::capi {

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
  T* operator->() const { return object_.get(); }

 private:
  std::shared_ptr<T> object_;
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace bitgrad::capi
