#include "base/registration.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad::detail {
namespace {

using NameOf = std::pair<std::string, std::string>;  // what, name

// What the plugin currently registering on this thread has registered so far.
struct Stage {
  std::string plugin;
  std::vector<std::pair<NameOf, std::function<void()>>> added;
  bool has(const NameOf& name) const {
    return std::any_of(added.begin(), added.end(), [&](const auto& a) { return a.first == name; });
  }
};
thread_local Stage* t_stage = nullptr;

// Owners of names added to the built-in ones; an empty text means the program.
struct Owners {
  std::mutex mutex;
  std::map<NameOf, std::string> of;
};
Owners& owners() {
  static Owners all;
  return all;
}

std::string whose(const NameOf& name) {
  if (t_stage != nullptr && t_stage->has(name)) return ": this plugin registered it before";
  Owners& all = owners();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find(name);
  if (found != all.of.end() && !found->second.empty()) return concat(": it is of plugin ", found->second);
  if (t_stage == nullptr) return {};
  return found != all.of.end() ? ": it is of this program" : ": it is built in";
}

std::atomic<uint64_t> g_added{0};

void note_added(const NameOf& name, const std::string& plugin) {
  Owners& all = owners();
  const std::lock_guard lock(all.mutex);
  all.of[name] = plugin;
  ++g_added;
}

}  // namespace

void require_new(std::string_view function, const Named& named, bool exists, std::string_view refusal) {
  const NameOf name(named.what, named.name);
  require(!exists && (t_stage == nullptr || !t_stage->has(name)), function, named.what, " '", named.name, "' ", refusal,
          whose(name));
}

void add_new(const Named& named, std::function<void()> add) {
  const NameOf name(named.what, named.name);
  if (t_stage != nullptr) {
    t_stage->added.emplace_back(name, std::move(add));
    return;
  }
  add();
  note_added(name, "");
}

uint64_t added_names() { return g_added; }

void SharedKeys::claim(std::string_view function, const std::string& owner, const std::vector<Key>& keys,
                       const std::shared_ptr<const void>& holder) {
  check_keys(function, owner, keys);
  const std::lock_guard lock(mutex_);
  for (const Key& key : keys) {
    require(std::find(taken_.begin(), taken_.end(), key.name) == taken_.end(), function, owner, ": the key '", key.name,
            "' exists already: it is built in");
    for (const Claim& claim : claims_)
      for (const Key& other : claim.keys)
        require(other.name != key.name || other == key || claim.holder.expired(), function, owner, ": the key '",
                key.name, "' exists already with another description, at ", claim.owner);
  }
  std::erase_if(claims_, [](const Claim& claim) { return claim.holder.expired(); });
  if (!keys.empty()) claims_.push_back({holder, owner, keys});
}

std::string plugin_of(std::string_view what, std::string_view name) {
  Owners& all = owners();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find({std::string(what), std::string(name)});
  return found == all.of.end() ? std::string() : found->second;
}

void register_of_plugin(const std::string& plugin, const std::function<void()>& registration) {
  Stage stage{plugin, {}};
  {
    struct Scope {
      Stage* outer;
      ~Scope() { t_stage = outer; }
    } const scope{std::exchange(t_stage, &stage)};
    registration();
  }
  for (const auto& [name, add] : stage.added) {
    add();
    note_added(name, plugin);
  }
}

}  // namespace bitgrad::detail
