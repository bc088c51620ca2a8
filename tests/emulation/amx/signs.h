// Direct convolutions of signs and of few channels (src/kernels/conv/{binary,first_layer}) on 16 lanes in memory.
#pragma once

#include "kernels/conv/binary/binary.h"
#include "kernels/conv/first_layer/first_layer.h"

namespace bitgrad::kernels::conv {

const SignIsa& signs_emulated();
const FewIsa& few_emulated();

}  // namespace bitgrad::kernels::conv
