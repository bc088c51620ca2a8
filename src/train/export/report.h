// What targets of graphs share: errors of what they refuse.
#pragma once

#include <string_view>

#include "bitgrad/train/interop.h"

namespace bitgrad {

// Throws Error that lists the refused layers.
void require_none_refused_layers(const ExportReport& report, std::string_view where);

}  // namespace bitgrad
