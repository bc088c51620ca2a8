// The account of memory as people read it.
#pragma once

#include <ostream>

#include "bitgrad/base/memory.h"

namespace bitgrad::cli {

// "memory at the peak: 10.6 MB" and a line for each kind, the largest first.
void print_memory(std::ostream& out, const MemoryAccount& peak);

}  // namespace bitgrad::cli
