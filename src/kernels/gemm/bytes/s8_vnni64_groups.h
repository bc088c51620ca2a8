// Products of small integers with groups of B along k, B in layout vnni64, which is packed once: nothing of B but its
// scales is moved in a call, so that one row (a token that is generated) costs what reading B costs. docs/numerics.md
// section 4, "groups of B".
//
// A is a matrix of signed bytes without zero points, B holds u >= 0 (layout.h): qb = f u + c (f = 2 for kind sign,
// otherwise 1; c the lowest code). For every group g of k, with S the sum of A's codes over the group:
//   acc = f sum a u + (c - zb) S,  t = t + float(acc) * s   (with offsets t = t + (float(acc) * s + float(S) * m)).
// If A has groups of its own (inputs in blocks), a group is the smaller one, and s and m are multiplied by A's scale.
// acc is computed modulo 2^32. That is exact, because it fits in int32; otherwise the canonical codes are restored and
// another kernel computes the product. Groups are whole lines of the layout, of 4 vnni_fields codes. An instruction set
// provides S8GroupsKernel; the loops are shared (s8_vnni64_groups.cpp).
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"
#include "kernels/gemm/common/panel_params.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int kS8GroupsRows = 6;  // of the largest tile

// Rows of A times the panels of one group of panels, over all of k.
struct S8GroupsTile {
  const int8_t* a;  // [row][group of k][step][4 * fields], rows a_step bytes apart
  int64_t a_step;
  const uint8_t* tables;  // of the first row: [step][S8GroupsKernel::table_bytes]; null without them
  const uint8_t* b;       // [step][panel][16 columns][4], the lines of all groups of k one after another
  int panels;             // 1 .. kVnniPanels
  int64_t groups;
  int64_t steps, last_steps;    // lines of a panel per group of k, and of the last group
  int64_t each;                 // groups that share scale, offset and column_by
  int max;                      // the largest u
  int shift;                    // f = 1 << shift
  const int32_t* start;         // [row][group] c S, or null: column_by is set
  const int32_t* sums;          // [row][group] S; rows of start, sums and row_scale are `groups` apart
  const int32_t* column_by;     // [group / each][kPanelColumns] c - zb, or null
  const float *scale, *offset;  // [group / each][kPanelColumns]; offset may be null
  const float* row_scale;       // [row][group] scales of A, or null: it has none along k
  const uint16_t* halves;       // fp16 in place of scale, or null; only for kernels with PanelLoops::halves
  float* t;                     // [row][kPanelColumns], written
};

// Where a walk over groups of k is.
struct GroupAt {
  const S8GroupsTile& tile;
  int64_t params;        // where its parameters are in scale, offset and column_by; at first: the first column's
  int64_t g = 0;         // the group
  int64_t of_param = 0;  // 0 .. each - 1: of those that share parameters

  void next() {
    ++g;
    if (++of_param == tile.each) of_param = 0, params += kPanelColumns;
  }
  int64_t steps() const { return g + 1 == tile.groups ? tile.last_steps : tile.steps; }
};

struct S8GroupsKernel {
  int rows;  // of the largest tile, at most kS8GroupsRows
  void (*tile)(int rows, int bits, const S8GroupsTile& tile);
  int32_t (*row_sum)(const int8_t* row, int64_t count);
  PanelLoops panel;
  double gmacs;     // multiply-adds per nanosecond, by a tile of all rows
  double group_ns;  // to scale and add one group of one output
  // Makes what tiles of one row read in place of A, once per row: table_bytes of each step. Null: nothing.
  int64_t table_bytes = 0;
  double table_ns = 0;  // of each step
  void (*make_tables)(const int8_t* row, int64_t steps, uint8_t* out) = nullptr;
};

bool s8_vnni64_groups_supports(const GemmArgs& args);
double s8_vnni64_groups_cost(const GemmArgs& args, const S8GroupsKernel& kernel);
void s8_vnni64_groups_gemm(const GemmArgs& args, const S8GroupsKernel& kernel);

// The largest number of lines whose sums of pairs of products fit in 16 bits: a pair is at most 2 * 128 * max.
inline int64_t lines_in_words(int fields, int max) { return INT16_MAX / (2 * 128 * max) / fields; }

}  // namespace bitgrad::kernels::gemm_detail
