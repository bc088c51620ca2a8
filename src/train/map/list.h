// Declares the maps of layer train, one for each line of maps.inc. Headers of functors include it.
#pragma once

#include "kernels/map/map.h"

#define BITGRAD_MAP BITGRAD_DECLARE_MAP
#include "train/map/maps.inc"
#undef BITGRAD_MAP
