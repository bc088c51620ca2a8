// A plugin that registers one name twice.
#include "half.h"

BITGRAD_PLUGIN([] {
  bitgrad::register_layer(layer_kind_named("twice"));
  bitgrad::register_layer(layer_kind_named("twice"));
})
