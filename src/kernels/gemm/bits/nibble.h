// Nibble counts: products of bits by tables in L1 ("four Russians": Arlazarov, Dinic, Kronrod and Faradzev 1970).
// docs/numerics.md section 4. The sum tables (table.h) apply the same method to numbers: their lines hold sums of A.
//
// One operand provides the tables, the other the look-ups. 5 bits of k of the first operand make 32 entries. Entry e
// holds, for every lane (a row of that operand), how many of the 5 products count when the other operand has the bits
// e. A count is a nibble, so each byte of a register holds two lanes. One load then serves 5 products of every lane,
// instead of an exclusive or and a count:
//   c[lane, row] = sum_t T_t[bits 5t .. 5t+4 of row][lane]
// A nibble (at most 15) holds the sum of 3 entries. The low nibbles are then masked and added to bytes. The high ones
// are averaged twice, (16a + 16b + 1) / 2 = 8 (a + b), which joins four of them without a shift. Bytes are widened
// before they reach 255.
//
//   b1 x b1:  T counts bits that differ,             dot = K - 2 c
//   t x b1:   T of t counts products of +1,          dot = 2 c - popc(p0)
//   look-ups by t: t = (s1 + s2) / 2 with the signs s1 = t >= 0 and s2 = t > 0, both looked up in the same tables:
//             b1 x t: dot = K - c,  t x t: dot = c - popc(p0),  c = c1 + c2
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kNibbleGroup = 60;         // bits of k per word of look-ups
inline constexpr int64_t kNibbleTables = 12;        // per group, 5 bits each
inline constexpr int64_t kNibbleEntries = 32;       // per table
inline constexpr int64_t kNibbleMaxLanes = 128;     // per table
inline constexpr int64_t kNibbleMaxResident = 2;    // groups whose tables share L1
inline constexpr int64_t kNibbleGroupColumns = 15;  // 4 bits of k per lane
// 8 groups are 15 words of 32 bits, the unit in which rows of bits are read.
inline constexpr int64_t kPieceGroups = 8, kPieceWords = 15, kPieceColumns = kPieceGroups * kNibbleGroupColumns;

// Looks up a block of rows in the tables of one or two groups.
struct NibblePass {
  const uint8_t* tables;
  const uint64_t* words[kNibbleMaxResident][2];  // [group][plane][row], 60 bits each
  int groups, planes;
  int64_t rows;
  bool first, last;  // first: start the byte counts at 0; last: add them to the sums
  uint8_t* bytes;    // [row][lanes]
  uint16_t* sums;    // [row][lanes], lanes in order
};

// Computes one row of C from counts: dot = base + factor * count, y = float(dot) * (sa * sb) (+ bias).
struct NibbleOutput {
  const uint16_t* counts;
  const int32_t* base;
  int32_t factor;
  int64_t columns;
  float sa;
  const float* sb;
  const float* bias;  // may be null
  float* c;
};

// The functions that an instruction set provides. All pointers except NibbleOutput's are 64-byte aligned.
struct NibbleKernel {
  int64_t lanes;       // per table: 64 or 128; an entry takes lanes / 2 bytes
  int64_t resident;    // groups whose tables share L1: 24 KiB
  double gmacs;        // multiply-adds per nanosecond of look-ups
  double ns_of_group;  // to read a group of 60 bits of every lane and build its tables
  // Converts one word per lane to 8 nibble columns of lanes / 2 bytes.
  void (*columns)(const uint32_t* words, uint8_t* out);
  // Converts [15 words][16 rows] to 8 groups of 16 words of 60 bits, `step` apart.
  void (*split)(const uint32_t* words, uint64_t* out, int64_t step);
  // Builds the tables of a group from its 15 nibble columns. zero: what counts for a 0 bit of the other operand; one:
  // for a 1 bit, or null for the opposite of zero.
  void (*build)(const uint8_t* zero, const uint8_t* one, uint8_t* tables);
  void (*look_up)(const NibblePass& pass);
  // Transposes 8 rows of counts, `step` apart, to 8 columns for all lanes: out[lane][0 .. 7], `out_step` apart.
  void (*transpose)(const uint16_t* in, int64_t step, uint16_t* out, int64_t out_step);
  void (*write)(const NibbleOutput& output);
  int32_t (*count)(const uint32_t* words, int64_t count, int64_t step);  // popc of words `step` apart
};

struct NibbleDot {
  bool ternary_a, ternary_b;
};
// Whether the popcount kernels support this pair of operands and the sums fit in 16 bits.
bool nibble_supports(const GemmArgs& args, NibbleDot dot);
// Layouts as in the popcount kernels: A canonical or planes, B panels16.
void nibble_gemm(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot);
// Estimated time in nanoseconds.
double nibble_cost(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot);

// The functions of a line of kernels.inc, run by kKernel.
#define BITGRAD_NIBBLE_KERNEL(name, ternary_a, ternary_b)                                                 \
  bool name##_supports(const GemmArgs& args) { return nibble_supports(args, {ternary_a, ternary_b}); }    \
  double name##_cost(const GemmArgs& args) { return nibble_cost(args, kKernel, {ternary_a, ternary_b}); } \
  void name(const GemmArgs& args) { nibble_gemm(args, kKernel, {ternary_a, ternary_b}); }

}  // namespace bitgrad::kernels::gemm_detail
