// Declares the maps of layer nn, one for each line of maps.inc. Headers of functors include it.
#pragma once

#include "kernels/map/map.h"

#define BITGRAD_MAP BITGRAD_DECLARE_MAP
#include "nn/map/maps.inc"
#undef BITGRAD_MAP
