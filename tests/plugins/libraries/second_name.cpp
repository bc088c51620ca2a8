// A plugin whose last kind has the name of a built-in one.
#include "half.h"

BITGRAD_PLUGIN([] {
  register_some("second");
  bitgrad::register_layer(layer_kind_named("linear"));
})
