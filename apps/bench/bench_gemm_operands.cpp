#include "bench_gemm.h"

#include "bitgrad/dtype/codec.h"

#include <algorithm>
#include <cstring>

namespace bitgrad::bench {
namespace {

// Number of rows with random values. The others repeat them, rotated by some elements, so that large operands are
// created at the speed of a copy.
constexpr int64_t kDrawnRows = 256;

// Rotates bytes [0, used) of a row by `turn` bytes, which are whole elements.
void turn_row(const char* from, int64_t used, int64_t turn, char* to) {
  std::memcpy(to, from + turn, static_cast<size_t>(used - turn));
  std::memcpy(to + used - turn, from, static_cast<size_t>(turn));
}

}  // namespace

Matrix::Matrix(DType type, int64_t r, int64_t c, std::mt19937& rng)
    : dtype(type), rows(r), cols(c), stride(row_bytes_memory(type, c)), bytes(r * stride) {
  const DTypeInfo& info = dtype.info();
  const bool codebook = info.kind == DTypeKind::kCodebook;
  std::vector<double> numbers(static_cast<size_t>(cols));
  for (int64_t i = 0; i < std::min(rows, kDrawnRows); ++i) {
    for (double& x : numbers) {
      if (dtype.is_float()) {
        x = static_cast<double>(rng() % 2001) / 1000 - 1;
      } else if (codebook) {
        x = info.levels[rng() % info.levels.size()];
      } else if (info.kind == DTypeKind::kSign) {
        x = rng() % 2 == 0 ? -1 : 1;
      } else {
        const auto span = static_cast<uint64_t>(dtype.is_code() ? info.qmax - info.qmin : 200);
        x = static_cast<double>((dtype.is_code() ? info.qmin : -100) + static_cast<int64_t>(rng() % (span + 1)));
      }
    }
    pack_row(dtype, numbers.data(), cols, static_cast<char*>(bytes.data()) + i * stride);
  }
  // Narrow codes are rotated in units of eight, which are whole bytes. A row that ends within a unit is not rotated.
  const int bits = dtype.bits();
  const int64_t unit = bits >= 8 ? bits / 8 : bits, used = (cols * bits + 7) / 8;
  const int64_t turns = cols * bits % 8 == 0 && used % unit == 0 ? used / unit : 1;
  for (int64_t i = kDrawnRows; i < rows; ++i) {
    char* const all = static_cast<char*>(bytes.data());
    turn_row(all + i % kDrawnRows * stride, used, i / kDrawnRows % turns * unit, all + i * stride);
  }
}

void Matrix::add_scales(bool k_major, int64_t group, bool with_offsets, std::mt19937& rng) {
  const int64_t free = k_major ? cols : rows, k = k_major ? rows : cols,
                groups = group == 0 ? 1 : (k + group - 1) / group;
  for (int64_t i = 0; i < free * groups; ++i) {
    scales.push_back(static_cast<float>(rng() % 1000 + 1) / 65536);
    offsets.push_back(static_cast<float>(rng() % 1000) / 1000 - 0.5f);
  }
  map.scale = scales.data();
  if (with_offsets) map.offset = offsets.data();
  (k_major ? map.col_step : map.row_step) = k_major ? 1 : groups;
  if (group == 0) return;
  (k_major ? map.row_step : map.col_step) = k_major ? free : 1;
  (k_major ? map.row_group : map.col_group) = group;
}

void Matrix::add_zeros(bool k_major, std::mt19937& rng) {
  for (int64_t i = 0; i < (k_major ? cols : rows); ++i) zeros.push_back(static_cast<int32_t>(rng() % 201) - 100);
  map.zero = zeros.data();
  (k_major ? map.col_step : map.row_step) = 1;
}

std::unique_ptr<Bytes> packed(Matrix& x, Layout layout) {
  const LayoutInfo& info = layout.info();
  if (!info.supports(x.dtype)) return nullptr;
  auto out = std::make_unique<Bytes>(info.bytes(x.dtype, x.rows, x.cols));
  info.pack(x.dtype, x.rows, x.cols, x.bytes.data(), x.stride, out->data());
  return out;
}

}  // namespace bitgrad::bench
