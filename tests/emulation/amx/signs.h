// Direct convolutions of signs (src/kernels/windows/signs) around 16 lanes in memory.
#pragma once

#include "kernels/windows/signs/signs.h"

namespace bitgrad::kernels::windows {

const SignIsa& signs_emulated();

}  // namespace bitgrad::kernels::windows
