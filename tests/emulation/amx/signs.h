// Direct convolutions of signs and of few channels (src/kernels/windows/{signs,few}) on 16 lanes in memory.
#pragma once

#include "kernels/windows/few/few.h"
#include "kernels/windows/signs/signs.h"

namespace bitgrad::kernels::windows {

const SignIsa& signs_emulated();
const FewIsa& few_emulated();

}  // namespace bitgrad::kernels::windows
