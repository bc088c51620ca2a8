#include "bitgrad/tensor/storage.h"

namespace bitgrad {

Storage::Block::Block(int64_t size, MemoryKind memory_kind, Device where)
    : bytes(size), kind(memory_kind), device(where), data(tracked_allocate(size, memory_kind, where)) {}
Storage::Block::~Block() { tracked_release(data, bytes, kind, device); }

Storage::Storage(int64_t bytes, MemoryKind kind, Device device)
    : block_(std::make_shared<Block>(bytes, kind, device)) {}

void Storage::set_kind(MemoryKind kind) const {
  if (!block_ || block_->kind == kind) return;
  tracked_move(block_->bytes, block_->kind, kind);
  block_->kind = kind;
}

}  // namespace bitgrad
