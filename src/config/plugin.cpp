#include "bitgrad/config/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <optional>

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad {
namespace {

constexpr const char* kEntryPoint = "bitgrad_plugin";

struct Loaded {
  Plugin plugin;
  void* handle = nullptr;
};
struct Plugins {
  std::recursive_mutex mutex;  // recursive: a plugin's static constructors may load others
  std::vector<Loaded> all;
};
Plugins& plugins() {
  static Plugins state;
  return state;
}

template <typename... Parts>
[[noreturn]] void refuse(const Plugin& plugin, const Parts&... parts) {
  fail("plugin", plugin.path, ": ", parts...);
}

std::string why_not_loaded() {
  const char* const text = dlerror();
  std::string error = text != nullptr ? text : "no reason given by the system";
  if (error.find("undefined symbol: ") != std::string::npos)
    error +=
        ". It was built for another version of bitgrad, or this program does not export the library's symbols (CMake: "
        "bitgrad_plugin_host)";
  return error;
}

// Closes the library unless it is kept.
class Handle {
 public:
  explicit Handle(void* handle) : handle_(handle) {}
  ~Handle() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void* get() const { return handle_; }
  void* keep() { return std::exchange(handle_, nullptr); }

 private:
  void* handle_;
};

// Reads only the first two members of the entry until its version is known to match.
const PluginEntry& entry_of(const Plugin& plugin, void* handle) {
  void* const symbol = dlsym(handle, kEntryPoint);
  if (symbol == nullptr)
    refuse(plugin, "has no symbol ", kEntryPoint,
           ", so it is not a plugin: one of its files must contain BITGRAD_PLUGIN(f)");
  const PluginEntry* const entry = reinterpret_cast<const PluginEntry* (*)()>(symbol)();
  if (entry == nullptr) refuse(plugin, kEntryPoint, " returns no entry");
  if (entry->interface != kPluginInterface)
    refuse(plugin, "is of plugin interface ", entry->interface, ", expected ", kPluginInterface,
           ". Build it with the headers of this program");
  const std::string build = entry->build != nullptr ? entry->build : "nothing";
  if (build != BITGRAD_PLUGIN_BUILD)
    refuse(plugin, "was built with ", build, ", expected ", BITGRAD_PLUGIN_BUILD,
           ". Build it with the headers of this program");
  if (entry->register_all == nullptr) refuse(plugin, "has no function that registers");
  return *entry;
}

// The text of what the registration throws: the exception itself must be destroyed before the plugin is closed.
std::optional<std::string> failure_of(const Plugin& plugin, const PluginEntry& entry) {
  try {
    detail::register_of_plugin(plugin.name, entry.register_all);
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "it threw something that is not a std::exception";
  }
}

}  // namespace

Plugin load_plugin(const std::string& path) {
  Plugin plugin;
  plugin.path = std::filesystem::absolute(path).lexically_normal().string();
  plugin.name = std::filesystem::path(plugin.path).filename().string();
  Plugins& state = plugins();
  const std::lock_guard lock(state.mutex);
  for (const Loaded& loaded : state.all)
    if (loaded.plugin.path == plugin.path) return loaded.plugin;
  if (!file_system().exists(plugin.path)) refuse(plugin, "no such file");
  if (file_system().is_directory(plugin.path)) refuse(plugin, "is a folder, not a shared library");
  try {
    file_system().open_read(plugin.path);  // a pipe would never open
  } catch (const Error& error) {
    refuse(plugin, "is not a shared library: ", error.what());
  }
  Handle handle(dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle.get() == nullptr) refuse(plugin, "cannot be loaded: ", why_not_loaded());
  for (const Loaded& loaded : state.all)
    if (loaded.handle == handle.get()) return loaded.plugin;  // the same file under another path
  const std::optional<std::string> failure = failure_of(plugin, entry_of(plugin, handle.get()));
  if (failure) refuse(plugin, "its registration failed, and nothing of it is kept: ", *failure);
  state.all.push_back({plugin, handle.keep()});
  return plugin;
}

std::vector<Plugin> loaded_plugins() {
  Plugins& state = plugins();
  const std::lock_guard lock(state.mutex);
  std::vector<Plugin> all;
  for (const Loaded& loaded : state.all) all.push_back(loaded.plugin);
  return all;
}

}  // namespace bitgrad
