// Names that plugins and programs add to the lists of the library. What a plugin registers is kept until all of it is
// known to be good, so that a plugin that fails half-way leaves nothing behind.
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

// What is registered: "a layer kind", and its name.
struct Named {
  std::string_view what;
  std::string name;
};
// Throws Error("[function] <what> '<name>' <refusal>...") when the name exists: the list has it (`exists`), or the
// plugin that registers on this thread. It says whose the name is where a plugin is concerned.
void require_new(std::string_view function, const Named& named, bool exists,
                 std::string_view refusal = "exists already");
// Runs `add`: now, or, while a plugin registers on this thread, when it has registered everything.
void add_new(const Named& named, std::function<void()> add);

// Names that were added so far: whoever keeps something that follows from the lists looks whether there are new ones.
uint64_t added_names();

// The file name of the plugin that gave this name; empty: it is built in, of the program, or unknown.
std::string plugin_of(std::string_view what, std::string_view name);

// Runs `registration` of a plugin of this file name; adds what it registered when it returns, nothing when it throws.
void register_of_plugin(const std::string& plugin, const std::function<void()>& registration);

// Keys of several owners that stand in one map of a configuration, beside those that every owner has (`taken`).
class SharedKeys {
 public:
  explicit SharedKeys(std::vector<std::string_view> taken) : taken_(std::move(taken)) {}
  // Throws Error("[function] ...") for keys that do not read, are taken, or have another description at an owner that
  // is still there; else remembers them as long as `holder` lives.
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
