#include "kernels/gemm/tables/table.h"

#include <algorithm>
#include <cstring>

#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kSumBytes = 768 * 1024;  // for the sums of a task
constexpr int64_t kManyColumns = 2048, kMostColumns = 4096, kFewColumns = 1024;
constexpr double kTaskNs = 75000;

// Index of a line from four raw ternary codes in one byte, with the upper bit of each code inverted: 1, 2, 3 represent
// the digits 0, 1, 2; 0 is not a code.
struct TernaryIndexes {
  uint8_t index[256];
  constexpr TernaryIndexes() : index{} {
    for (int byte = 0; byte < 256; ++byte) {
      for (int i = 3; i >= 0; --i) {
        const int digit = (byte >> (2 * i)) & 3;
        index[byte] = static_cast<uint8_t>(index[byte] * 3 + (digit == 0 ? 0 : digit - 1));
      }
    }
  }
};
constexpr TernaryIndexes kTernary;

// `length` bits, at most 48, from bit `at` of a row stored in whole 64-bit words.
uint64_t bits_at(const uint8_t* row, int64_t at, int64_t length) {
  uint64_t word;
  std::memcpy(&word, row + at / 64 * 8, 8);
  const int64_t shift = at % 64;
  word >>= shift;
  if (shift + length > 64) {
    uint64_t next;
    std::memcpy(&next, row + (at / 64 + 1) * 8, 8);
    word |= next << (64 - shift);
  }
  return word & ((uint64_t{1} << length) - 1);
}

// For B stored as [free, k].
void free_major_offsets(const TableShape& shape, const GemmOperand& b, int64_t j0, int64_t columns, int64_t k0,
                        int64_t depth, uint16_t* out) {
  const int64_t bits = b.dtype.bits(), length = depth * bits;
  const int field = shape.codes * static_cast<int>(bits);
  const uint64_t mask = (uint64_t{1} << field) - 1;
  const uint64_t invert =
      bits == 2 && shape.first < 0 ? 0xAAAAAAAAAAAAAAAAu & ((uint64_t{1} << length) - 1) : uint64_t{0};
  const bool ternary = shape.base == 3;
  for (int64_t j = 0; j < columns; ++j, out += kTableFields) {
    uint64_t word = bits_at(stored_row(b, j0 + j), k0 * bits, length) ^ invert;
    for (int64_t g = 0; g < kTableFields; ++g, word >>= field) {
      const uint64_t index = ternary ? kTernary.index[word & mask] : word & mask;
      out[g] = static_cast<uint16_t>(index * kTableLine);
    }
  }
}

}  // namespace

TableShape table_shape(DType b) {
  const DTypeInfo& info = b.info();
  if (info.kind == DTypeKind::kSign) return {6, 7, 2, 64, -1, 2};
  const bool integers = info.kind == DTypeKind::kInt || info.kind == DTypeKind::kUint;
  const int low = static_cast<int>(info.qmin);
  if (!integers || info.bits > 2) return {};
  if (info.bits == 1) return low == 0 && info.qmax == 1 ? TableShape{6, 7, 2, 64, 0, 1} : TableShape{};
  if (low == -1 && info.qmax == 1) return {4, 6, 3, 81, -1, 1};
  const bool full = info.kind == DTypeKind::kInt ? low == -2 && info.qmax == 1 : low == 0 && info.qmax == 3;
  return full ? TableShape{3, 7, 4, 64, low, 1} : TableShape{};
}

TableCut cut_tables(const GemmArgs& args, int64_t lanes, int64_t bytes_per_column, double most_tasks) {
  if (args.m <= 0 || args.n <= 0) return {1, kTableColumns, 0, 0};
  const int64_t all = ceil_div(args.m, lanes), room = kSumBytes / bytes_per_column;
  int64_t columns = std::clamp(room / all, kManyColumns, kMostColumns);
  columns = std::min(columns, round_up(args.n, kTableColumns));
  int64_t lines = std::min(all, std::max<int64_t>(1, room / columns));
  const auto wanted = static_cast<int64_t>(std::max(1.0, std::min(multiply_adds(args) / (250 * kTaskNs), most_tasks)));
  while (ceil_div(all, lines) * ceil_div(args.n, columns) < wanted) {
    if (columns >= 2 * kFewColumns) {
      columns = round_up(ceil_div(columns, 2), kTableColumns);
    } else if (lines >= 4) {
      lines = ceil_div(lines, 2);
    } else {
      break;
    }
  }
  TableCut cut{};
  cut.lines = ceil_div(all, ceil_div(all, lines));
  cut.columns = round_up(ceil_div(args.n, ceil_div(args.n, columns)), kTableColumns);
  cut.blocks_m = ceil_div(all, cut.lines);
  cut.blocks_n = ceil_div(args.n, cut.columns);
  return cut;
}

TableBlock::TableBlock(const GemmArgs& args, const TableCut& cut, int64_t lanes, int64_t index)
    : shape_(table_shape(args.b.dtype)),
      m0_(index / cut.blocks_n * cut.lines * lanes),
      n0_(index % cut.blocks_n * cut.columns),
      m_(std::min(cut.lines * lanes, args.m - m0_)),
      n_(std::min(cut.columns, args.n - n0_)),
      lines_(ceil_div(m_, lanes)),
      columns_(round_up(n_, kTableColumns)),
      chunk_(kTableChunk / shape_.depth() * shape_.depth()) {}

void table_offsets(const TableKernel& kernel, const TableShape& shape, const GemmOperand& b, int64_t j0,
                   int64_t columns, int64_t k0, int64_t depth, uint16_t* out) {
  if (!b.k_major) return free_major_offsets(shape, b, j0, columns, k0, depth, out);
  const int bits = b.dtype.bits();
  kernel.offsets(shape, {stored_row(b, k0) + j0 * bits / 8, b.stride, depth, columns, bits}, out);
}

double table_cost(const TableKernel& kernel, const GemmArgs& args, const TableCut& cut, int64_t lanes,
                  double finish_ns) {
  constexpr double kTask = 400, kLine = 0.4, kKMajor = 0.8, kFreeMajor = 2.5, kPackA = 0.4;
  if (args.m <= 0 || args.n <= 0) return kTask;
  const TableShape shape = table_shape(args.b.dtype);
  const double all = static_cast<double>(ceil_div(args.m, lanes)), n = static_cast<double>(round_up(args.n, 16));
  const double groups = static_cast<double>(ceil_div(args.k, shape.codes));
  const double passes = static_cast<double>(ceil_div(args.k, shape.depth()));
  const double lookups = all * n * (groups + 1.0 * passes) * kernel.ns_lookup;  // adding to sums: one more per pass
  const double built = all * static_cast<double>(cut.blocks_n) * groups * shape.lines * kLine;
  const double offsets = passes * n * static_cast<double>(cut.blocks_m) * (args.b.k_major ? kKMajor : kFreeMajor);
  const double packed = kPackA * static_cast<double>(args.m) * static_cast<double>(args.k * cut.blocks_n);
  return kTask * static_cast<double>(1 + cut.blocks_m * cut.blocks_n) + lookups + built + offsets + packed +
         finish_ns * all * static_cast<double>(lanes) * n;
}

}  // namespace bitgrad::kernels::gemm_detail
