// A plugin that was compiled with the headers of another version.
#include "bitgrad/config/plugin.h"

namespace {
void never() { *static_cast<volatile int*>(nullptr) = 1; }
}  // namespace
extern "C" const bitgrad::PluginEntry* bitgrad_plugin() {
  static const bitgrad::PluginEntry entry{bitgrad::kPluginInterface, "bitgrad 0.0.1, another compiler", never};
  return &entry;
}
