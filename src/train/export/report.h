// What targets of graphs share: errors of what they refuse.
#pragma once

#include <string_view>

#include "bitgrad/train/interop.h"

namespace bitgrad {

// Throws Error that lists the refused layers and tensors.
void require_all_held(const ExportReport& report, std::string_view where);

}  // namespace bitgrad
