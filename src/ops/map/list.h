// Declares the maps of layer ops, one per line of maps.inc. Included by the headers of functors.
#pragma once

#include "kernels/map/map.h"

#define BITGRAD_MAP BITGRAD_DECLARE_MAP
#include "ops/map/maps.inc"
#undef BITGRAD_MAP
