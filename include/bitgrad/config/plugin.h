// Plugins: user shared libraries that add layer kinds, losses, metrics, data sets and quantization schemes to an
// existing program. A configuration names them with `plugins: [file.so]`.
//
//   void register_all() { bitgrad::register_layer(...); }   // in one file of the plugin
//   BITGRAD_PLUGIN(register_all)
//
// A plugin is compiled with the library's headers but not linked with the library: its symbols come from the program,
// which exports them (CMake: bitgrad_add_plugin, and bitgrad_plugin_host for your own programs).
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/commit.h"
#include "bitgrad/base/version.h"

namespace bitgrad {

// Version of the entry point. The layout of PluginEntry never changes, so a program can reject plugins of any other
// version.
inline constexpr unsigned kPluginInterface = 1;

struct PluginEntry {
  unsigned interface = kPluginInterface;
  const char* build = nullptr;       // build of the plugin's headers: BITGRAD_PLUGIN_BUILD
  void (*register_all)() = nullptr;  // called once; may throw
};

// Plugins compile the library's classes and inline functions in, so both sides need the same headers and an
// ABI-compatible compiler.
#define BITGRAD_PLUGIN_TEXT_(x) #x
#define BITGRAD_PLUGIN_NUMBER_(x) BITGRAD_PLUGIN_TEXT_(x)
#ifdef _GLIBCXX_USE_CXX11_ABI
#define BITGRAD_PLUGIN_STRINGS_ BITGRAD_PLUGIN_NUMBER_(_GLIBCXX_USE_CXX11_ABI)
#else
#define BITGRAD_PLUGIN_STRINGS_ "-"
#endif
#define BITGRAD_PLUGIN_BUILD                  \
  "bitgrad " BITGRAD_VERSION " (" BITGRAD_GIT \
  "), C++ ABI " BITGRAD_PLUGIN_NUMBER_(__GXX_ABI_VERSION) ", strings " BITGRAD_PLUGIN_STRINGS_

// Defines the entry point `bitgrad_plugin`. `function` is a void() that calls register_layer etc.
#define BITGRAD_PLUGIN(function)                                                                            \
  extern "C" __attribute__((visibility("default"))) const ::bitgrad::PluginEntry* bitgrad_plugin() {        \
    static const ::bitgrad::PluginEntry entry{::bitgrad::kPluginInterface, BITGRAD_PLUGIN_BUILD, function}; \
    return &entry;                                                                                          \
  }

struct Plugin {
  std::string path = {};  // absolute
  std::string name = {};  // file name, used in saved files and messages
};

// Loads a plugin and adds what it registers. Does nothing for a path that is already loaded. Throws Error that names
// the path if the file does not exist, is no shared library, has no entry point or another version, or if its
// registration throws (e.g. for a name that is taken); none of its registrations are kept then.
Plugin load_plugin(const std::string& path);
// In load order.
std::vector<Plugin> loaded_plugins();

}  // namespace bitgrad
