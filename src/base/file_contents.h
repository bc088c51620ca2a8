// Reading files whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::detail {

// All bytes, whatever size() says (files of /proc say 0). Error(kMemory) that names `path` when they do not fit.
std::vector<uint8_t> read_whole(InputFile& file, const std::string& path);

}  // namespace bitgrad::detail
