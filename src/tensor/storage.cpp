#include "bitgrad/tensor/tensor.h"

#include <utility>

namespace bitgrad {

Storage::Block::Block(int64_t size, MemoryKind memory_kind, Device where)
    : bytes(size), kind(memory_kind), device(where), data(tracked_allocate(size, memory_kind, where)) {}
Storage::Block::Block(void* bytes_of, int64_t size, std::shared_ptr<const void> keeps, Device where)
    : bytes(size), kind(MemoryKind::kBatch), device(where), data(bytes_of), counted(false), owner(std::move(keeps)) {}
Storage::Block::~Block() {
  if (counted) tracked_release(data, bytes, kind, device);
}

Storage Storage::external(void* data, int64_t bytes, std::shared_ptr<const void> owner, Device device) {
  Storage out;
  out.block_ = std::make_shared<Block>(data, bytes, std::move(owner), device);
  return out;
}

Storage::Storage(int64_t bytes, MemoryKind kind, Device device)
    : block_(std::make_shared<Block>(bytes, kind, device)) {}

void Storage::set_kind(MemoryKind kind) const {
  if (!block_ || block_->kind == kind) return;
  if (block_->counted) tracked_move(block_->bytes, block_->kind, kind);
  block_->kind = kind;
}

}  // namespace bitgrad
