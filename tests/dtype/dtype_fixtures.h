// Shared by the dtype tests: a bit-by-bit reader, exact allocations, a small generator, and the dtypes that a program
// might add.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/dtype.h"

namespace bitgrad::test {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

// Exactly `bytes` bytes from the heap, so that ASan sees one byte too many; filled with junk.
class ExactBytes {
 public:
  explicit ExactBytes(int64_t bytes, uint8_t fill = 0xA5)
      : size_(bytes), data_(new uint8_t[static_cast<size_t>(bytes)]) {
    for (int64_t i = 0; i < bytes; ++i) data_[static_cast<size_t>(i)] = fill;
  }
  uint8_t* get() { return data_.get(); }
  const uint8_t* get() const { return data_.get(); }
  int64_t size() const { return size_; }
  bool operator==(const ExactBytes& other) const {
    return std::vector<uint8_t>(get(), get() + size_) == std::vector<uint8_t>(other.get(), other.get() + other.size_);
  }

 private:
  int64_t size_;
  std::unique_ptr<uint8_t[]> data_;
};

inline int bit_of(const void* bytes, int64_t bit) {
  return static_cast<const uint8_t*>(bytes)[bit / 8] >> (bit % 8) & 1;
}

inline uint32_t naive_raw(const void* row, int64_t i, int bits) {
  uint32_t raw = 0;
  for (int b = 0; b < bits; ++b) raw |= static_cast<uint32_t>(bit_of(row, i * bits + b)) << b;
  return raw;
}

// The number of a raw code from the kind alone, without the library's tables.
inline double naive_number(const DTypeInfo& info, uint32_t raw) {
  const int64_t half = int64_t{1} << (info.bits - 1), top = int64_t{1} << info.bits;
  const int64_t r = raw;
  if (info.kind == DTypeKind::kSign) return r == 1 ? 1.0 : -1.0;
  if (info.kind == DTypeKind::kUint) return static_cast<double>(r);
  if (info.kind == DTypeKind::kCodebook && raw < info.levels.size()) return static_cast<double>(info.levels[raw]);
  return static_cast<double>(r >= half ? r - top : r);
}

// A codebook with fewer levels than codes, and two integer dtypes under names of their own.
inline DType my_nf4() {
  return register_dtype({"my_nf4",
                         4,
                         DTypeKind::kCodebook,
                         0,
                         0,
                         {-1.0f, -0.7f, -0.5f, -0.4f, -0.3f, -0.2f, -0.1f, 0.0f, 0.1f, 0.2f, 0.3f, 0.5f, 0.7f, 1.0f}});
}
inline DType my_ternary() { return register_dtype({"my_ternary", 2, DTypeKind::kInt, -1, 1, {}}); }
inline DType my_uint8() { return register_dtype({"my_uint8", 8, DTypeKind::kUint, 0, 200, {}}); }

// Every code dtype, three of which a program added.
inline std::vector<DType> code_dtypes_with_own() {
  my_nf4();
  my_ternary();
  my_uint8();
  std::vector<DType> codes;
  for (const DType dtype : all_dtypes()) {
    if (dtype.is_code()) codes.push_back(dtype);
  }
  return codes;
}

inline bool is_integer(DType dtype) {
  return dtype.kind() != DTypeKind::kFloat && dtype.kind() != DTypeKind::kCodebook;
}

// n raw codes of any value of the width.
inline std::vector<uint8_t> random_raw(DType dtype, int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> raw(static_cast<size_t>(n));
  for (uint8_t& r : raw) r = static_cast<uint8_t>(random.below(int64_t{1} << dtype.bits()));
  return raw;
}

}  // namespace bitgrad::test
