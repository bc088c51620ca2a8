// Sum tables: products with codes of 1 or 2 bits by tables of sums in L1, the "method of four Russians" (Arlazarov,
// Dinic, Kronrod, Faradzev 1970). Orders in docs/numerics.md section 4. The nibble counts (nibble.h) are the same
// method for bits on both sides: their entries are counts.
//
//   C[m, n] = sum_k A[m, k] B[n, k].  For a block of rows of A across the lanes of one 64-byte line (16 fp32 or 32
//   int16) and a group of contracted indices, all sums that the codes of B can select are tabulated once. Each column n
//   then costs one load and one addition per group.
// A pass is what one set of tables covers. The order of float additions, for every output:
//   t_i = A[m, k_i] * value of the code, rounded;  group g = t_0 + t_1 + .., left to right;  P = group_0 + group_1 +
//   .., left to right;  sum = P_0, then sum = sum + P_p. Indices beyond K are omitted. K = 0: +0.
// It depends on the dtype of B alone, so scalar, AVX2 and AVX-512 kernels give the same bits.
//
// Sums are kept in L2 as [block of rows][column][lane] and transposed into C at the end. An instruction set provides a
// TableKernel; the loops are in table_f32.cpp and table_i16.cpp.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kTableLine = 64;     // bytes
inline constexpr int64_t kTableFields = 8;    // offsets per column and pass; unused ones are 0
inline constexpr int64_t kTableColumns = 64;  // the number of columns is padded to a multiple of this

// Groups of `codes` codes, `groups` of them per pass. Index of a line: sum of digit_i * base^i over a group's codes,
// where digit d represents the value first + d * step.
struct TableShape {
  int codes, groups, base, lines;
  int first, step;
  int64_t depth() const { return codes * groups; }
  int64_t table_bytes() const { return lines * kTableLine; }
  int64_t bytes() const { return groups * table_bytes(); }
  int number(int digit) const { return first + digit * step; }
  int magnitude() const { return number(base - 1) > -first ? number(base - 1) : -first; }
};
// codes is 0 if the dtype has no tables: more than 2 bits, a codebook, or an unsupported range of codes.
TableShape table_shape(DType b);

// The codes of one pass of a B stored as [k, free]: row k0, column j0 (a multiple of kTableColumns) is at `codes`.
struct TableCodes {
  const uint8_t* codes;
  int64_t stride, depth, columns;
  int bits;
};

// Converts sums to rows of C: y = float(sum) * (row_scale[i] * column_scale[j]) + bias[j], C = y or C + y. Scales and
// bias may be null. At most 16 rows.
struct TableFinish {
  const float* sums;          // [column][16 lanes]; null: float(low + 4096 * high)
  const int16_t *low, *high;  // [column][32 lanes], from a multiple of 16 on; high may be null
  int64_t rows, columns;
  const float *row_scale, *column_scale, *bias;
  bool add;
  float* c;
  int64_t ldc;
};

// Number is fp32 in lines of 16 lanes or int16 in lines of 32. Every pointer to lines is aligned to a line.
template <typename Number>
struct TableLoops {
  // Builds all tables of a pass from `depth` lines of A.
  void (*build)(const TableShape& shape, const Number* a, int64_t depth, char* tables);
  // sums[j] = (first ? P : sums[j] + P) for every column.
  void (*add)(const TableShape& shape, int64_t groups, bool first, const char* tables, const uint16_t* offsets,
              int64_t columns, Number* sums);
};

struct TableKernel {
  // out[column][field] = byte offset from the start of the group's table, up to the next multiple of kTableColumns.
  void (*offsets)(const TableShape& shape, const TableCodes& codes, uint16_t* out);
  TableLoops<float> f32;
  TableLoops<int16_t> i16;
  void (*finish)(const TableFinish& finish);
  // The largest sum of magnitudes over `depth` lines in any lane. Magnitudes are at most 65535 each.
  int32_t (*bound)(const int16_t* a, int64_t depth);
  // Exact sums are high * 4096 + low: high += (low + 2048) >> 12, low -= that * 4096. first: high was 0.
  void (*carry)(int16_t* low, int16_t* high, int64_t columns, bool first);
  double ns_lookup;  // to add one line
};

// How a product is cut into tasks: blocks of rows (in lines of `lanes`) and of columns.
struct TableCut {
  int64_t lines, columns;  // per full task
  int64_t blocks_m, blocks_n;
};
// Cuts into at most most_tasks tasks, for the sake of threads: small tasks compute offsets and tables more often. Every
// output is the same for any cut. Costs assume kTableTasks, whatever the number of threads.
inline constexpr double kTableTasks = 8;
TableCut cut_tables(const GemmArgs& args, int64_t lanes, int64_t bytes_per_column, double most_tasks);

inline constexpr int64_t kTableChunk = 252;  // maximum contracted indices of A expanded at a time

// Task `index` of a cut: rows [m0, m0 + m) and columns [n0, n0 + n) of C, in whole lines of `lanes` and whole columns
// of offsets. A is expanded for `chunk` contracted indices at a time, a whole number of passes.
struct TableBlock {
  TableBlock(const GemmArgs& args, const TableCut& cut, int64_t lanes, int64_t index);
  const TableShape shape_;
  const int64_t m0_, n0_, m_, n_, lines_, columns_, chunk_;
};
// Hands out consecutive pieces of memory.
struct TableMemory {
  char* next;
  template <typename T>
  T* take(int64_t bytes) {
    char* const taken = next;
    next += bytes;
    return reinterpret_cast<T*>(taken);
  }
};

// Offsets of one pass, for any B, columns [j0, j0 + columns).
void table_offsets(const TableKernel& kernel, const TableShape& shape, const GemmOperand& b, int64_t j0,
                   int64_t columns, int64_t k0, int64_t depth, uint16_t* out);

// Float sums: A of any dtype except fp64, B as bare codes (no scale, or fold_b_scale).
bool table_f32_supports(const GemmArgs& args);
double table_f32_cost(const TableKernel& kernel, const GemmArgs& args);
void run_table_f32(const TableKernel& kernel, const GemmArgs& args);

// Exact sums of plain integer products without zero points: A of at most 8 bits.
bool table_i16_supports(const GemmArgs& args);
double table_i16_cost(const TableKernel& kernel, const GemmArgs& args);
void run_table_i16(const TableKernel& kernel, const GemmArgs& args);

// Nanoseconds of a product in lines of `lanes` rows; finish_ns per output.
double table_cost(const TableKernel& kernel, const GemmArgs& args, const TableCut& cut, int64_t lanes,
                  double finish_ns);

}  // namespace bitgrad::kernels::gemm_detail
