// Direct convolutions (src/kernels/windows/tiles) on emulated tiles.
#pragma once

#include "kernels/windows/tiles/direct.h"

namespace bitgrad::kernels::windows {

const DirectIsa& direct_emulated();

}  // namespace bitgrad::kernels::windows
