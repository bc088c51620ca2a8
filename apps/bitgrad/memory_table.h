// Human-readable memory account.
#pragma once

#include <ostream>

#include "bitgrad/base/memory.h"

namespace bitgrad::cli {

// Prints "memory at the peak: 10.6 MB" and a line per kind, largest first.
void print_memory(std::ostream& out, const MemoryAccount& peak);

}  // namespace bitgrad::cli
