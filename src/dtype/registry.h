// The table behind DType handles. One process-wide object serves the public functions; tests make their own.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::detail {

// Throws Error unless `info` describes a dtype that a program may add; the rules stand at register_dtype.
void check_registrable(const DTypeInfo& info);

// Append-only. Readers take no lock: a record is complete before the count that covers it is published, and is never
// changed or moved.
class DTypeRegistry {
 public:
  static constexpr int kCapacity = 255;  // the 256th is an error, so that one byte value stays free

  DTypeRegistry();  // holds the built-in dtypes
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
