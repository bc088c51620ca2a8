// Location of codes in layout frag64: the order in which a GPU warpgroup holds the row operand of its products, so that
// each thread loads its codes as words and unpacks them in registers.
//
// [block of 64 rows][block of 128 columns][parts of 4, 2 and 1 bits, as the width requires, high bits first]. In a part
// of p bits, thread t (0 .. 127) owns 2p words of 32 bits; each byte y of a word packs p-bit fields of 8/p operand
// registers. Byte y of register 4s + r of thread t is the code at (PTX ISA, wgmma, operand A of 8 bits)
//   row 16 (t/32) + t%32/4 + 8 (r%2),  column 32 s + 16 (r/2) + 4 (t%4) + y.
// Rows and columns are padded with raw 0. The CUDA kernels include this header.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"

namespace bitgrad::frag64_layout {

inline constexpr int kRows = 64, kColumns = 128, kThreads = 128;
BITGRAD_HD constexpr int64_t block_bytes(int bits) { return int64_t{kRows} * kColumns * bits / 8; }
BITGRAD_HD constexpr int64_t row_blocks(int64_t rows) { return (rows + kRows - 1) / kRows; }
BITGRAD_HD constexpr int64_t column_blocks(int64_t cols) { return (cols + kColumns - 1) / kColumns; }

// Byte offset of word `word` of thread `thread` in a part. In 4-bit parts, groups of 4 words (16 bytes) are interleaved
// by thread; smaller parts are contiguous per thread.
BITGRAD_HD constexpr int word_byte(int part, int thread, int word) {
  return part == 4 ? word / 4 * (kThreads * 16) + thread * 16 + word % 4 * 4 : thread * 8 * part + word * 4;
}

struct CodePlace {
  int byte, shift;  // within the part
};
// `row` and `column` are relative to the block.
BITGRAD_HD constexpr CodePlace place(int part, int row, int column) {
  const int step = column / 32, inside = column % 32, fields = 8 / part;
  const int index = 4 * step + row % 16 / 8 + 2 * (inside / 16);
  const int thread = row / 16 * 32 + row % 8 * 4 + inside % 16 / 4;
  return {word_byte(part, thread, index / fields) + inside % 4, index % fields * part};
}

struct WordPlace {
  int thread, word;
};
// The inverse of word_byte; `byte` must be the start of a word.
BITGRAD_HD constexpr WordPlace word_place(int part, int byte) {
  if (part == 4) return {byte % (kThreads * 16) / 16, byte / (kThreads * 16) * 4 + byte % 16 / 4};
  return {byte / (8 * part), byte % (8 * part) / 4};
}

}  // namespace bitgrad::frag64_layout
