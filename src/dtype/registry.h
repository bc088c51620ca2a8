// The table behind DType handles. The public functions use one process-wide instance; tests create their own.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::detail {

// Throws Error unless `info` describes a dtype that a program may add. The rules are documented at register_dtype.
void check_registrable(const DTypeInfo& info);

// Append-only. Readers take no lock: a record is complete before the count that includes it is published, and is never
// changed or moved afterwards.
class DTypeRegistry {
 public:
  static constexpr int kCapacity = 255;  // a 256th dtype is an error, which leaves one byte value free

  DTypeRegistry();  // registers the built-in dtypes
  DTypeRegistry(const DTypeRegistry&) = delete;
  DTypeRegistry& operator=(const DTypeRegistry&) = delete;

  int count() const { return count_.load(std::memory_order_acquire); }
  const DTypeInfo& info(uint8_t id) const;
  std::optional<DType> find(std::string_view name) const;
  DType add(DTypeInfo info);

 private:
  void append(DTypeInfo info);

  std::array<DTypeInfo, 256> records_;
  std::atomic<int> count_{0};
  std::mutex mutex_;
};

DTypeRegistry& dtype_registry();

}  // namespace bitgrad::detail
