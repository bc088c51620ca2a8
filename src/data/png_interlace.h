// Pictures that come in seven passes (Adam7, PNG section 8.2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad::data {

// Whether the header of a PNG says 16-bit samples in passes, which libpng 1.6.39 takes apart wrongly where it makes
// 8-bit ones of them.
bool has_wide_passes(const std::vector<uint8_t>& png);
// The same picture line by line. `png`: of has_wide_passes, and its chunks are known to be whole. Throws Error(kData)
// where its lines are not what its header says.
std::string without_passes(const std::vector<uint8_t>& png);

}  // namespace bitgrad::data
