// Packs values and raw codes into rows; the transpose of a device.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "dtype/bit_tricks.h"
#include "dtype/code_tables.h"

namespace bitgrad {
namespace {

template <int B>
void gather_row(const uint8_t* raw, int64_t n, uint8_t* out) {
  int64_t j = 0;
  for (; j + 8 <= n; j += 8, out += B) {
    uint64_t w;
    std::memcpy(&w, raw + j, 8);
    w = detail::gather_codes<B>(w);
    std::memcpy(out, &w, B);
  }
  if (j == n) return;
  const uint64_t w = detail::gather_codes<B>(detail::load_bytes(raw + j, n - j));
  std::memcpy(out, &w, static_cast<size_t>(((n - j) * B + 7) / 8));
}

// A float that rounds to any width of at most 22 mantissa bits exactly as x does: the odd neighbour if x lies between
// two floats (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
// to odd").
float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::isnan(x) || static_cast<double>(nearest) == x || (bits & 1u) != 0) return nearest;
  return std::bit_cast<float>(std::abs(static_cast<double>(nearest)) < std::abs(x) ? bits + 1 : bits - 1);
}

template <typename To, typename Convert>
void store_row(const double* numbers, int64_t n, void* row, Convert convert) {
  auto* p = static_cast<char*>(row);
  for (int64_t j = 0; j < n; ++j) {
    const To x = convert(numbers[j]);
    std::memcpy(p + j * static_cast<int64_t>(sizeof(To)), &x, sizeof(To));
  }
}

void pack_wide(DType dtype, const double* numbers, int64_t n, void* row) {
  switch (dtype.id()) {
    case dtypes::fp64.id():
      return store_row<double>(numbers, n, row, [](double x) { return x; });
    case dtypes::fp32.id():
      return store_row<float>(numbers, n, row, [](double x) { return static_cast<float>(x); });
    case dtypes::int64.id():
      return store_row<int64_t>(numbers, n, row, [](double x) { return static_cast<int64_t>(x); });
    case dtypes::int32.id():
      return store_row<int32_t>(numbers, n, row, [](double x) { return static_cast<int32_t>(x); });
    case dtypes::bf16.id():
      return store_row<uint16_t>(numbers, n, row, [](double x) { return bf16_from_float(round_to_odd(x)); });
    case dtypes::fp16.id():
      return store_row<uint16_t>(numbers, n, row, [](double x) { return fp16_from_float(round_to_odd(x)); });
    default:
      fail_with(ErrorCode::kBug, "pack_row", "no writer for dtype: got ", dtype, ", expected a wide built-in.");
  }
}

// Checks all values before any is written.
void check_numbers(const DTypeInfo& info, const double* numbers, int64_t n) {
  if (info.kind == DTypeKind::kFloat) return;
  if (info.kind == DTypeKind::kCodebook) {
    for (int64_t j = 0; j < n; ++j) {
      require(!std::isnan(numbers[j]), "pack_row", "element ", j, " for dtype ", info.name, ": got ", numbers[j],
              ", expected a number.");
    }
    return;
  }
  // qmax of int64 is not representable as a double, so the upper bound is the exclusive qmax + 1.
  const double low = static_cast<double>(info.qmin);
  const double high = info.bits == 64 ? 0x1p63 : static_cast<double>(info.qmax) + 1.0;
  for (int64_t j = 0; j < n; ++j) {
    const double x = numbers[j];
    const bool fits = x >= low && x < high && x == std::floor(x) && (info.kind != DTypeKind::kSign || x != 0.0);
    if (fits) continue;
    fail("pack_row", "element ", j, " for dtype ", info.name, ": got ", x, ", expected ",
         info.kind == DTypeKind::kSign ? "-1 or 1" : concat("an integer in [", info.qmin, ", ", info.qmax, ']'), '.');
  }
}

struct Level {
  float value;
  uint8_t raw;
};

// Levels in ascending order without duplicates; of equal levels (+0 and -0) the lower raw code is kept.
std::vector<Level> sorted_levels(const DTypeInfo& info) {
  std::vector<Level> levels;
  for (size_t i = 0; i < info.levels.size(); ++i) levels.push_back({info.levels[i], static_cast<uint8_t>(i)});
  std::stable_sort(levels.begin(), levels.end(), [](Level a, Level b) { return a.value < b.value; });
  const auto same = [](Level a, Level b) { return a.value == b.value; };
  levels.erase(std::unique(levels.begin(), levels.end(), same), levels.end());
  return levels;
}

uint8_t nearest_level(const std::vector<Level>& levels, double x) {
  const auto above = std::lower_bound(levels.begin(), levels.end(), x, [](Level a, double b) { return a.value < b; });
  if (above == levels.begin()) return above->raw;
  const auto below = above - 1;
  if (above == levels.end()) return below->raw;
  const double twice_middle = static_cast<double>(below->value) + static_cast<double>(above->value);
  return x + x <= twice_middle ? below->raw : above->raw;
}

}  // namespace

void pack_row_raw(DType dtype, const uint8_t* raw, int64_t n, void* row, bool pad_to_memory) {
  const int bits = detail::code_tables(dtype, "pack_row_raw").bits;
  if (n <= 0) return;
  auto* out = static_cast<uint8_t*>(row);
  if (pad_to_memory) {
    const int64_t used = (n * bits + 7) / 8;
    std::memset(out + used, 0, static_cast<size_t>((n * bits + 63) / 64 * 8 - used));
  }
  detail::with_width(bits, [=](auto width) { gather_row<width()>(raw, n, out); });
}

void pack_row(DType dtype, const double* numbers, int64_t n, void* row) {
  const DTypeInfo& info = dtype.info();
  check_numbers(info, numbers, n);
  if (!dtype.is_code()) return pack_wide(dtype, numbers, n, row);
  const std::vector<Level> levels = sorted_levels(info);
  // 256 codes fill whole 64-bit words at every width, so chunks are contiguous.
  constexpr int64_t kChunk = 256;
  uint8_t raw[kChunk];
  for (int64_t j = 0; j < n; j += kChunk) {
    const int64_t m = std::min(kChunk, n - j);
    for (int64_t i = 0; i < m; ++i) {
      raw[i] = levels.empty() ? static_cast<uint8_t>(encode_int(info, static_cast<int64_t>(numbers[j + i])))
                              : nearest_level(levels, numbers[j + i]);
    }
    pack_row_raw(dtype, raw, m, static_cast<uint8_t*>(row) + j / 8 * info.bits);
  }
}

namespace {

std::atomic<TransposeFunction> g_transpose{nullptr};

}  // namespace

void register_device_transpose(TransposeFunction function) { g_transpose.store(function, std::memory_order_release); }

void transpose_on_device(const TransposeArgs& args) {
  const TransposeFunction function = g_transpose.load(std::memory_order_acquire);
  if (function == nullptr)
    fail_with(ErrorCode::kDevice, "transpose", to_string(current_device()),
              " has no kernels. Use the CPU (device.kind=cpu).");
  function(args);
}

}  // namespace bitgrad
