// Plugins: shared libraries of a user that add layer kinds, losses, metrics, data sets and schemes of quantization to a
// program that is built. A configuration names them by `plugins: [file.so]`.
//
//   void register_all() { bitgrad::register_layer(...); }   // in one file of the plugin
//   BITGRAD_PLUGIN(register_all)
//
// A plugin is compiled with the headers of the library, and is not linked with it: what it calls is in the program,
// which exports its symbols (CMake: bitgrad_add_plugin, and bitgrad_plugin_host for programs of one's own).
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/version.h"

namespace bitgrad {

// Of the entry point. Its form never changes, so that a program can refuse a plugin of any other version by it.
inline constexpr unsigned kPluginInterface = 1;

struct PluginEntry {
  unsigned interface = kPluginInterface;
  const char* build = nullptr;       // what the plugin was compiled with: BITGRAD_PLUGIN_BUILD of its headers
  void (*register_all)() = nullptr;  // called once; may throw
};

// Classes and inline functions of the library are compiled into plugins, so both sides must have the same headers and a
// compiler that lays classes out in the same way.
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

// Defines the entry point `bitgrad_plugin`. function: void(), calls register_layer and the like.
#define BITGRAD_PLUGIN(function)                                                                            \
  extern "C" __attribute__((visibility("default"))) const ::bitgrad::PluginEntry* bitgrad_plugin() {        \
    static const ::bitgrad::PluginEntry entry{::bitgrad::kPluginInterface, BITGRAD_PLUGIN_BUILD, function}; \
    return &entry;                                                                                          \
  }

struct Plugin {
  std::string path = {};  // absolute
  std::string name = {};  // of the file: what saved files and messages call it
};

// Loads a plugin and adds what it registers. A path that is loaded already is left as it is. Throws Error that names
// the path when there is no such file, it is no shared library, has no entry point or another version, or when its
// registration throws, such as for a name that exists: nothing of it was added then.
Plugin load_plugin(const std::string& path);
// In the order in which they were loaded.
std::vector<Plugin> loaded_plugins();

}  // namespace bitgrad
