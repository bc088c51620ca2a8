// Dtypes as data: a one-byte handle into a registry of records. docs/numerics.md section 1.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

enum class DTypeKind : uint8_t {
  kFloat,     // IEEE or bfloat16
  kInt,       // two's complement
  kUint,      // unsigned
  kSign,      // {-1, +1}: raw 0 is -1, raw 1 is +1
  kCodebook,  // raw code -> level table
};
std::string_view kind_name(DTypeKind kind);
std::optional<DTypeKind> find_kind(std::string_view name);

// Complete definition of a dtype. Files store this record, never the handle.
struct DTypeInfo {
  std::string name = {};
  int bits = 0;  // per element
  DTypeKind kind = DTypeKind::kFloat;
  int64_t qmin = 0, qmax = 0;      // code range (int, uint); sign: -1, 1; codebook: 0, levels-1; float: 0, 0
  std::vector<float> levels = {};  // codebook only: values by raw code
  friend bool operator==(const DTypeInfo&, const DTypeInfo&) = default;
};

class DType {
 public:
  constexpr DType() = default;  // fp64
  constexpr explicit DType(uint8_t id) : id_(id) {}
  constexpr uint8_t id() const { return id_; }
  const DTypeInfo& info() const;
  const std::string& name() const { return info().name; }
  int bits() const { return info().bits; }
  DTypeKind kind() const { return info().kind; }
  bool is_float() const { return kind() == DTypeKind::kFloat; }
  // Packed: at most 8 bits per element, stored as a code (int1..8, uint2..8, ternary, bint1, codebooks).
  bool is_code() const { return bits() <= 8; }
  friend constexpr bool operator==(DType, DType) = default;

 private:
  uint8_t id_ = 0;
};
std::ostream& operator<<(std::ostream& out, DType dtype);

// Built-in handles: dtypes::fp32, dtypes::int4, dtypes::bint1, dtypes::ternary, ...
namespace dtypes {
namespace detail {
enum : uint8_t {
#define BITGRAD_DTYPE(symbol, ...) k_##symbol,
#define BITGRAD_DTYPE_CODEBOOK(symbol, ...) k_##symbol,
#include "bitgrad/dtype/dtypes.inc"
#undef BITGRAD_DTYPE
#undef BITGRAD_DTYPE_CODEBOOK
};
}  // namespace detail
#define BITGRAD_DTYPE(symbol, ...) inline constexpr DType symbol{detail::k_##symbol};
#define BITGRAD_DTYPE_CODEBOOK(symbol, ...) inline constexpr DType symbol{detail::k_##symbol};
#include "bitgrad/dtype/dtypes.inc"
#undef BITGRAD_DTYPE
#undef BITGRAD_DTYPE_CODEBOOK
}  // namespace dtypes

// Adds a dtype at run time. Kinds int and uint need 1..8 bits and a code range that fits them; kind sign needs 1 bit
// and range -1, 1; a codebook needs 2..8 bits and 2 to 2^bits finite levels (qmin and qmax are filled in). Registering
// an equal record again returns the same handle. Throws Error for an invalid record, a different record under a known
// name, or the 256th dtype.
DType register_dtype(DTypeInfo info);
std::optional<DType> find_dtype(std::string_view name);
// As find_dtype, but throws Error for an unknown name, listing all names and the nearest one.
DType parse_dtype(std::string_view name);
// All registered dtypes, in registration order.
std::vector<DType> all_dtypes();

// Scales of a matrix as kernels read them: pointers plus an index rule.
// Maps the codes of a quantized [rows, cols] matrix to values: value = s * (q - z), or s * q + m; value = q if all
// pointers are null. The parameters of element (r, c) are at (r / row_group) * row_step + (c / col_group) * col_step.
struct ScaleMap {
  const float* scale = nullptr;
  const int32_t* zero = nullptr;  // integer zero points, indexed as scale
  const float* offset = nullptr;  // real offsets, indexed as scale
  int64_t row_step = 0, col_step = 0;
  int64_t row_group = 1, col_group = 1;

  int64_t index(int64_t r, int64_t c) const { return (r / row_group) * row_step + (c / col_group) * col_step; }
  bool trivial() const { return scale == nullptr && zero == nullptr && offset == nullptr; }
  bool per_tensor() const { return row_step == 0 && col_step == 0; }
  bool per_row() const { return row_step == 1 && row_group == 1 && col_step == 0; }
  bool per_column() const { return col_step == 1 && col_group == 1 && row_step == 0; }
};

}  // namespace bitgrad
