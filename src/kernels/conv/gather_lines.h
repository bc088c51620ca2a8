// Gathers adjacent windows whose tap columns are all inside, by vectors: one load and one store per tap row.
#pragma once

#include <array>
#include <cstdint>

#include "bitgrad/base/cpu.h"

namespace bitgrad::kernels::conv {

inline constexpr int64_t kLineBytes = 64;  // per store

// Tap row ky of window i: copies `bytes` bytes from from[ky] + i * advance[ky] to to + i * row_stride + ky * bytes.
struct GatherLine {
  int64_t windows = 0, rows = 0;  // rows: of taps
  const char* const* from = nullptr;
  const int64_t* advance = nullptr;
  int64_t bytes = 0;
  int64_t span = 0;  // bytes read; if different from `bytes`, byte i comes from order[i], and both are at most 64
  const std::array<uint8_t, kLineBytes>* order = nullptr;
  char* to = nullptr;
  int64_t row_stride = 0;
};

// Number of bytes after a tap row that gather_line overwrites with zeros.
constexpr int64_t line_overrun(int64_t bytes, int64_t span) {
  const int64_t unit = span <= kLineBytes / 2 ? kLineBytes / 2 : kLineBytes;
  return (bytes + unit - 1) / unit * unit - bytes;
}

// Whether gather_line is available for tap rows of `bytes` bytes within `span`.
inline bool has_gather_line(int64_t bytes, int64_t span) {
  constexpr IsaMask kNeeds = isa::kAvx2 | isa::kAvx512 | isa::kAvx512Vbmi;
  return (cpu_isa() & kNeeds) == kNeeds && (bytes == span || span <= kLineBytes);
}
void gather_line(const GatherLine& line);

}  // namespace bitgrad::kernels::conv
