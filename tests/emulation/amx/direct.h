// Direct convolutions (src/kernels/conv/amx) on emulated tiles.
#pragma once

#include "kernels/conv/amx/direct.h"

namespace bitgrad::kernels::conv {

const DirectIsa& direct_emulated();

}  // namespace bitgrad::kernels::conv
