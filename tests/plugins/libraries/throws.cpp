// A plugin that registers some things and then throws.
#include <stdexcept>

#include "half.h"

BITGRAD_PLUGIN([] {
  register_some("thrown");
  throw std::runtime_error("the table of the plugin is missing");
})
