// A plugin with a name that rings_plugin.so has.
#include "half.h"

BITGRAD_PLUGIN([] { bitgrad::register_layer(layer_kind_named("squares")); })
