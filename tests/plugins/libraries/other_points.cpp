// A plugin whose data set describes a key otherwise than that of rings_plugin.so.
#include "half.h"

BITGRAD_PLUGIN([] { register_some("other", "points"); })
