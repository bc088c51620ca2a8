// Reads whole files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::detail {

// Reads all bytes, whatever size() reports (files in /proc report 0). Throws Error(kMemory) that names `path` if they
// do not fit in memory.
std::vector<uint8_t> read_whole(InputFile& file, const std::string& path);

}  // namespace bitgrad::detail
