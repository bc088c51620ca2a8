// Row sizes, and decoding of rows: the expanders behind every reference kernel and the panels of the products.
//
// A row of codes is read in groups of 8, which always start on a byte. For 1, 2 and 4 bits each byte selects its values
// from a table; other widths are spread to 8 bytes in a register. No byte outside the row is read.
#include "bitgrad/dtype/codec.h"

#include <algorithm>
#include <cstring>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "dtype/bit_tricks.h"
#include "dtype/code_tables.h"

namespace bitgrad {
namespace {

using detail::CodeTables;

constexpr int64_t kChunk = 256;  // elements per step where an intermediate type is needed

// Calls one(j, raw) for single elements at both ends and group(j, word) for 8 codes in the low 8 B bits of word, whose
// higher bits may be set.
template <int B, typename One, typename Group>
inline void for_codes(const void* row, int64_t first, int64_t n, One one, Group group) {
  int64_t j = 0;
  const int64_t head = std::min(n, (8 - (first & 7)) & 7);
  for (; j < head; ++j) one(j, load_raw(row, first + j, B));
  const uint8_t* p = static_cast<const uint8_t*>(row) + (first + j) / 8 * B;
  const int64_t groups = (n - j) / 8;
  int64_t g = 0;
  if constexpr (B == 3 || B == 5 || B == 6 || B == 7) {
    // An 8-byte load stays inside the row as long as 8 bytes of full groups remain.
    for (const int64_t wide = groups * B >= 8 ? (groups * B - 8) / B + 1 : 0; g < wide; ++g, j += 8, p += B) {
      uint64_t w;
      std::memcpy(&w, p, 8);
      group(j, w);
    }
  }
  for (; g < groups; ++g, j += 8, p += B) {
    uint64_t w = 0;
    std::memcpy(&w, p, B);
    group(j, w);
  }
  for (; j < n; ++j) one(j, load_raw(row, first + j, B));
}

template <int B, typename T>
void expand(const void* row, int64_t first, int64_t n, const T* table, const T* groups, T* out) {
  for_codes<B>(
      row, first, n, [=](int64_t j, uint32_t raw) { out[j] = table[raw]; },
      [=](int64_t j, uint64_t w) {
        if constexpr (B == 1 || B == 2 || B == 4) {
          constexpr int kPerByte = 8 / B;
          for (int i = 0; i < B; ++i) {
            std::memcpy(out + j + i * kPerByte, groups + ((w >> (8 * i)) & 0xFF) * kPerByte, kPerByte * sizeof(T));
          }
        } else {
          const uint64_t bytes = detail::spread_codes<B>(w);
          for (int i = 0; i < 8; ++i) out[j + i] = table[(bytes >> (8 * i)) & 0xFF];
        }
      });
}

template <typename T>
void expand_any(int bits, const void* row, int64_t first, int64_t n, const T* table, const T* groups, T* out) {
  detail::with_width(bits, [=](auto width) { expand<width()>(row, first, n, table, groups, out); });
}

// Raw codes as bytes or, with `sign`, as two's complement values (B <= 7): (raw ^ s) - s in every byte, s being the
// weight of the top bit. 128 is added first and flipped back afterwards, so that no byte borrows from the next.
template <int B, bool sign>
void expand_bytes(const void* row, int64_t first, int64_t n, uint8_t* out) {
  constexpr uint64_t kBytes = 0x0101010101010101u, kTop = uint64_t{1} << (B - 1);
  const auto extend = [](uint64_t bytes) {
    return sign ? ((bytes ^ (kTop * kBytes)) + (128 - kTop) * kBytes) ^ (128 * kBytes) : bytes;
  };
  for_codes<B>(
      row, first, n, [=](int64_t j, uint32_t raw) { out[j] = static_cast<uint8_t>(extend(raw)); },
      [=](int64_t j, uint64_t w) {
        const uint64_t bytes = extend(detail::spread_codes<B>(w));
        std::memcpy(out + j, &bytes, 8);
      });
}

// Copies 8-bit codes; `flip` subtracts 128 from uint8 codes by flipping the top bit.
void copy_bytes(const uint8_t* p, int64_t n, bool flip, uint8_t* out) {
  if (!flip) {
    std::memcpy(out, p, static_cast<size_t>(n));
    return;
  }
  for (int64_t j = 0; j < n; ++j) out[j] = p[j] ^ 0x80;
}

// Scalar versions, kept out of line because callers usually take the vector path.
[[gnu::noinline]] void scalar_s8(const CodeTables& t, const void* row, int64_t first, int64_t n, int8_t* out) {
  if (!t.s8_groups.empty()) return expand_any(t.bits, row, first, n, t.s8, t.s8_groups.data(), out);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  if (t.bits == 8) return copy_bytes(static_cast<const uint8_t*>(row) + first, n, t.shift != 0, bytes);
  const bool sign = t.kind == DTypeKind::kInt;
  detail::with_width(t.bits, [=](auto width) {
    sign ? expand_bytes<width(), true>(row, first, n, bytes) : expand_bytes<width(), false>(row, first, n, bytes);
  });
}

[[gnu::noinline]] void scalar_floats(const CodeTables& t, const void* row, int64_t first, int64_t n, float* out) {
  if (!t.integer || !t.value_groups.empty())
    return expand_any(t.bits, row, first, n, t.values, t.value_groups.data(), out);
  int8_t chunk[kChunk];
  for (int64_t j = 0; j < n; j += kChunk) {
    const int64_t m = std::min(kChunk, n - j);
    scalar_s8(t, row, first + j, m, chunk);
    for (int64_t i = 0; i < m; ++i) out[j + i] = static_cast<float>(chunk[i] + t.shift);
  }
}

[[gnu::noinline]] void scalar_raw(int bits, const void* row, int64_t first, int64_t n, uint8_t* out) {
  detail::with_width(bits, [=](auto width) { expand_bytes<width(), false>(row, first, n, out); });
}

// Vector versions. They return false without doing anything if the CPU lacks the ISA or the scalar version is as fast:
// for short runs, and on AVX2 also for longer runs of widths whose scalar version has tables of whole bytes.
constexpr int64_t kVectorLeast = 16, kAvx2LeastBits = 128, kAvx2LeastFloats = 128;
bool has_byte_table(int bits) { return bits == 1 || bits == 2 || bits == 4; }

detail::CodeRun run_of(const void* row, int bits, int64_t first, int64_t n) {
  const int64_t bit = first * bits;
  return {static_cast<const uint8_t*>(row) + (bit >> 3), static_cast<int>(bit & 7), bits, n};
}

bool vector_bytes(const detail::CodeRun& run, const detail::ByteRule& rule, uint8_t* out) {
  const IsaMask granted = run.n < kVectorLeast ? isa::kScalar : cpu_isa();
  if ((granted & isa::kAvx512Vbmi) != 0) {
    unpack_bytes_vbmi(run, rule, out);
    return true;
  }
  const bool worth =
      !has_byte_table(run.bits) || (run.n * run.bits >= kAvx2LeastBits && (run.bits > 1 || run.bit == 0));
  if ((granted & isa::kAvx2) != 0 && worth) {
    unpack_bytes_avx2(run, rule, out);
    return true;
  }
  return false;
}

bool vector_floats(const detail::CodeRun& run, const detail::FloatRule& rule, float* out) {
  const IsaMask granted = run.n < kVectorLeast ? isa::kScalar : cpu_isa();
  const bool convert = rule.source != detail::FloatSource::kTable;
  if ((granted & isa::kAvx512) != 0 && (convert || run.bits <= 4)) {
    unpack_floats_avx512(run, rule, out);
    return true;
  }
  const bool worth = convert && run.bits > 2 && (run.bits != 4 || run.n >= kAvx2LeastFloats);
  if ((granted & isa::kAvx2) != 0 && worth) {
    unpack_floats_avx2(run, rule, out);
    return true;
  }
  return false;
}

// Rows of wide elements of type From, converted to To.
template <typename From, typename To, typename Convert>
void convert_row(const void* row, int64_t first, int64_t n, To* out, Convert convert) {
  const char* p = static_cast<const char*>(row) + first * static_cast<int64_t>(sizeof(From));
  for (int64_t j = 0; j < n; ++j) {
    From x;
    std::memcpy(&x, p + j * static_cast<int64_t>(sizeof(From)), sizeof(From));
    out[j] = convert(x);
  }
}
template <typename From, typename To>
void cast_row(const void* row, int64_t first, int64_t n, To* out) {
  convert_row<From>(row, first, n, out, [](From x) { return static_cast<To>(x); });
}

template <typename To>
void unpack_wide(DType dtype, const void* row, int64_t first, int64_t n, To* out) {
  switch (dtype.id()) {
    case dtypes::fp64.id():
      return cast_row<double>(row, first, n, out);
    case dtypes::fp32.id():
      return cast_row<float>(row, first, n, out);
    case dtypes::int64.id():
      return cast_row<int64_t>(row, first, n, out);
    case dtypes::int32.id():
      return cast_row<int32_t>(row, first, n, out);
    case dtypes::bf16.id():
      return convert_row<uint16_t>(row, first, n, out, [](uint16_t x) { return static_cast<To>(bf16_to_float(x)); });
    case dtypes::fp16.id():
      return convert_row<uint16_t>(row, first, n, out, [](uint16_t x) { return static_cast<To>(fp16_to_float(x)); });
    default:
      fail_with(ErrorCode::kBug, "unpack_row", "no reader for dtype: got ", dtype, ", expected a wide built-in.");
  }
}

// fp16 and bf16 by vectors, with the bits of unpack_wide; false without doing anything if that is no faster.
bool vector_halves(DType dtype, const void* row, int64_t first, int64_t n, float* out) {
  if (n < kVectorLeast || (dtype != dtypes::fp16 && dtype != dtypes::bf16)) return false;
  const IsaMask granted = cpu_isa();
  const uint8_t* p = static_cast<const uint8_t*>(row) + first * 2;
  if ((granted & isa::kAvx512) != 0)
    detail::unpack_halves_avx512(p, n, dtype == dtypes::bf16, out);
  else if ((granted & isa::kAvx2) != 0)
    detail::unpack_halves_avx2(p, n, dtype == dtypes::bf16, out);
  return (granted & (isa::kAvx512 | isa::kAvx2)) != 0;
}

void require_integers(const DTypeInfo& info, const char* where) {
  require(info.kind == DTypeKind::kInt || info.kind == DTypeKind::kUint || info.kind == DTypeKind::kSign, where,
          "dtype: got ", info.name, " of kind ", kind_name(info.kind), ", expected kind int, uint or sign.");
}

}  // namespace

// Unsigned, since rows of a tensor without elements may be of any length in a damaged file.
int64_t row_bytes_memory(DType dtype, int64_t n) {
  const auto bits = static_cast<uint64_t>(dtype.bits()), count = static_cast<uint64_t>(n);
  return static_cast<int64_t>(bits <= 8 ? (count * bits + 63) / 64 * 8 : count * (bits / 8));
}

int64_t row_bytes_file(DType dtype, int64_t n) {
  return static_cast<int64_t>((static_cast<uint64_t>(n) * static_cast<uint64_t>(dtype.bits()) + 7) / 8);
}

int64_t decode_int(const DTypeInfo& info, uint64_t raw) {
  require_integers(info, "decode_int");
  const int unused = 64 - info.bits;
  if (info.kind == DTypeKind::kSign) return (raw & 1) != 0 ? 1 : -1;
  if (info.kind == DTypeKind::kUint) return static_cast<int64_t>(raw << unused >> unused);
  return static_cast<int64_t>(raw << unused) >> unused;
}

uint64_t encode_int(const DTypeInfo& info, int64_t number) {
  require_integers(info, "encode_int");
  if (info.kind == DTypeKind::kSign) return number >= 0 ? 1 : 0;
  return static_cast<uint64_t>(number) & detail::low_mask(info.bits);
}

const float* code_values(DType dtype) { return detail::code_tables(dtype, "code_values").values; }

const int8_t* code_values_s8(DType dtype, int* shift) {
  const CodeTables& t = detail::code_tables(dtype, "code_values_s8");
  if (!t.integer) require_integers(dtype.info(), "code_values_s8");
  *shift = t.shift;
  return t.s8;
}

void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, float* out) {
  if (n <= 0) return;
  // A dtype with known tables is a code dtype, which saves the lookup of its record.
  const CodeTables* known = detail::known_code_tables[dtype.id()].load(std::memory_order_acquire);
  if (known == nullptr && !dtype.is_code()) {
    if (!vector_halves(dtype, row, first, n, out)) unpack_wide(dtype, row, first, n, out);
    return;
  }
  const CodeTables& t = known != nullptr ? *known : detail::code_tables(dtype, "unpack_row");
  if (!vector_floats(run_of(row, t.bits, first, n), t.value_rule, out)) scalar_floats(t, row, first, n, out);
}

void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, double* out) {
  if (n <= 0) return;
  if (!dtype.is_code()) return unpack_wide(dtype, row, first, n, out);
  float chunk[kChunk];
  for (int64_t j = 0; j < n; j += kChunk) {
    const int64_t m = std::min(kChunk, n - j);
    unpack_row(dtype, row, first + j, m, chunk);
    std::copy(chunk, chunk + m, out + j);
  }
}

void unpack_row(DType dtype, const void* row, int64_t first, int64_t n, int64_t* out) {
  require_integers(dtype.info(), "unpack_row");
  if (n <= 0) return;
  if (dtype == dtypes::int64) return cast_row<int64_t>(row, first, n, out);
  if (dtype == dtypes::int32) return cast_row<int32_t>(row, first, n, out);
  int shift = 0;
  code_values_s8(dtype, &shift);
  int8_t chunk[kChunk];
  for (int64_t j = 0; j < n; j += kChunk) {
    const int64_t m = std::min(kChunk, n - j);
    unpack_row_s8(dtype, row, first + j, m, chunk);
    for (int64_t i = 0; i < m; ++i) out[j + i] = chunk[i] + shift;
  }
}

void unpack_row_s8(DType dtype, const void* row, int64_t first, int64_t n, int8_t* out) {
  const CodeTables& t = detail::code_tables(dtype, "unpack_row_s8");
  if (!t.integer) require_integers(dtype.info(), "unpack_row_s8");
  if (n <= 0) return;
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  if (t.bits == 8) return copy_bytes(static_cast<const uint8_t*>(row) + first, n, t.shift != 0, bytes);
  if (!vector_bytes(run_of(row, t.bits, first, n), t.s8_rule, bytes)) scalar_s8(t, row, first, n, out);
}

void unpack_row_raw(DType dtype, const void* row, int64_t first, int64_t n, uint8_t* out) {
  const int bits = detail::code_tables(dtype, "unpack_row_raw").bits;
  if (n <= 0) return;
  if (bits == 8) return copy_bytes(static_cast<const uint8_t*>(row) + first, n, false, out);
  if (!vector_bytes(run_of(row, bits, first, n), {nullptr, 0}, out)) scalar_raw(bits, row, first, n, out);
}

}  // namespace bitgrad
