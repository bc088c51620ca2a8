// Names that plugins and programs add to the library's lists. Registrations of a plugin are staged until all have
// succeeded, so that a plugin that fails half-way leaves nothing behind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/key.h"

namespace bitgrad::detail {

// What is registered, e.g. "a layer kind", and its name.
struct Named {
  std::string_view what;
  std::string name;
};
// Throws Error("[function] <what> '<name>' <refusal>...") if the name is in the list (`exists`) or was registered
// before by the plugin that registers on this thread. If a plugin is involved, the message names the owner.
void require_new(std::string_view function, const Named& named, bool exists,
                 std::string_view refusal = "exists already");
// Runs `add` now, or, while a plugin registers on this thread, after its registration has succeeded.
void add_new(const Named& named, std::function<void()> add);

// The kinds of one sort: those built in, then those that programs and plugins register. Pointers to them stay valid.
template <typename Kind>
class KindList {
 public:
  explicit KindList(std::vector<Kind> built_in = {}) {
    for (Kind& kind : built_in) push(std::make_shared<const Kind>(std::move(kind)));
  }
  void push(std::shared_ptr<const Kind> kind) {
    const std::lock_guard lock(mutex_);
    kinds_.push_back(std::move(kind));
  }
  // Adds a kind of a new name, as add_new does. Throws what require_new throws.
  void add(std::string_view function, std::string_view what, Kind kind) {
    const Named named{what, kind.name};
    require_new(function, named, find(kind.name) != nullptr);
    add_new(named, [this, shared = std::make_shared<const Kind>(std::move(kind))] { push(shared); });
  }
  const Kind* find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& kind : kinds_)
      if (kind->name == name) return kind.get();
    return nullptr;
  }
  std::vector<const Kind*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<const Kind*> all;
    for (const auto& kind : kinds_) all.push_back(kind.get());
    return all;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Kind* kind : all()) names.push_back(kind->name);
    return names;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Kind>> kinds_;
};

// Number of names added so far: caches derived from the lists compare it to detect additions.
uint64_t added_names();

// The file name of the plugin that registered this name; empty if it is built in, the program's, or unknown.
std::string plugin_of(std::string_view what, std::string_view name);

// Runs `registration` for the plugin with this file name. Commits what it registered when it returns, nothing if it
// throws.
void register_of_plugin(const std::string& plugin, const std::function<void()>& registration);

// Keys of several owners that share one map of a configuration with the keys that every owner has (`taken`).
class SharedKeys {
 public:
  explicit SharedKeys(std::vector<std::string_view> taken) : taken_(std::move(taken)) {}
  // Throws Error("[function] ...") for keys that are invalid, taken, or described differently by an owner that still
  // exists. Otherwise remembers them for as long as `holder` lives.
  void claim(std::string_view function, const std::string& owner, const std::vector<Key>& keys,
             const std::shared_ptr<const void>& holder);

 private:
  struct Claim {
    std::weak_ptr<const void> holder;
    std::string owner;
    std::vector<Key> keys;
  };
  std::mutex mutex_;
  std::vector<std::string_view> taken_;
  std::vector<Claim> claims_;
};

}  // namespace bitgrad::detail
