// Storage: reference-counted bytes on one device, counted under a memory kind. Knows no dtype.
#pragma once

#include <cstdint>
#include <memory>

#include "bitgrad/base/device.h"
#include "bitgrad/base/memory.h"

namespace bitgrad {

class Storage {
 public:
  Storage() = default;
  Storage(int64_t bytes, MemoryKind kind, Device device = current_device());  // not initialised
  // Bytes of somebody else, which `owner` keeps alive; they are in no account.
  static Storage external(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device = Device::cpu());

  bool defined() const { return block_ != nullptr; }
  void* data() const { return block_ ? block_->data : nullptr; }
  int64_t bytes() const { return block_ ? block_->bytes : 0; }
  Device device() const { return block_ ? block_->device : Device{}; }
  MemoryKind kind() const { return block_ ? block_->kind : MemoryKind::kActivation; }
  // Whether other storages, of this thread or none, refer to the same bytes.
  bool shared() const { return block_.use_count() > 1; }
  // Moves the bytes to another column of the account (an activation that backward needs becomes `saved`).
  void set_kind(MemoryKind kind) const;
  // Tensors and other owners that share the bytes; 0: undefined.
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
    std::shared_ptr<const void> owner;  // of bytes that are not counted
  };
  std::shared_ptr<Block> block_;
};

}  // namespace bitgrad
