// Storage: reference-counted bytes on one device, accounted under a memory kind. It knows no dtype.
#pragma once

#include <cstdint>
#include <memory>

#include "bitgrad/base/device.h"
#include "bitgrad/base/memory.h"

namespace bitgrad {

class Storage {
 public:
  Storage() = default;
  Storage(int64_t bytes, MemoryKind kind, Device device = current_device());  // uninitialized
  // Wraps memory owned by someone else, kept alive by `owner`. It is not accounted.
  static Storage external(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device = Device::cpu());

  bool defined() const { return block_ != nullptr; }
  void* data() const { return block_ ? block_->data : nullptr; }
  int64_t bytes() const { return block_ ? block_->bytes : 0; }
  Device device() const { return block_ ? block_->device : Device{}; }
  MemoryKind kind() const { return block_ ? block_->kind : MemoryKind::kActivation; }
  // Whether other Storage objects, on any thread, refer to the same bytes.
  bool shared() const { return block_.use_count() > 1; }
  // Reclassifies the bytes in the account (an activation that backward needs becomes `saved`).
  void set_kind(MemoryKind kind) const;
  // Number of Storage objects that share the bytes; 0 if undefined.
  int64_t owners() const { return block_.use_count(); }
  friend bool operator==(const Storage& a, const Storage& b) { return a.block_ == b.block_; }

 private:
  struct Block {
    Block(int64_t bytes, MemoryKind kind, Device device);
    Block(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    int64_t bytes;
    MemoryKind kind;
    Device device;
    void* data;
    bool counted = true;
    std::shared_ptr<const void> owner;  // of external bytes, which are not accounted
  };
  std::shared_ptr<Block> block_;
};

}  // namespace bitgrad
