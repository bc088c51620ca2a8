// Errors for what graph targets refuse.
#pragma once

#include <string_view>

#include "bitgrad/interop/interop.h"

namespace bitgrad {

// Throws Error that lists the refused layers and tensors.
void require_all_held(const ExportReport& report, std::string_view where);

}  // namespace bitgrad
