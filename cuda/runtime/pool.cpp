#include "cuda/runtime/pool.h"

#include <array>
#include <bit>

#include "bitgrad/base/error.h"

namespace bitgrad::cuda {
namespace {

constexpr int64_t kUnit = 512;
thread_local int t_pool = 0;

}  // namespace

int64_t MemoryPool::class_bytes(int64_t bytes) {
  if (bytes <= 8 * kUnit) return bytes <= kUnit ? kUnit : (bytes + kUnit - 1) / kUnit * kUnit;
  const int shift = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 4;  // 8 .. 15 times 2^shift
  return ((bytes - 1) >> shift << shift) + (int64_t{1} << shift);
}

void* MemoryPool::pop(int pool, Stream stream, int64_t bytes) {
  const auto it = free_.find({pool, stream, bytes});
  if (it == free_.end() || it->second.empty()) return nullptr;
  void* const data = it->second.back();
  it->second.pop_back();
  if (pool == 0) kept_ -= bytes;
  return data;
}

void* MemoryPool::acquire(int64_t bytes) {
  const int64_t size = class_bytes(bytes);
  const Stream stream = current_stream();
  void* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    data = pop(t_pool, stream, size);
    if (data == nullptr && t_pool != 0) data = pop(0, stream, size);
  }
  if (data == nullptr) data = device_malloc(size);
  if (data == nullptr) {
    if (capturing(stream)) return nullptr;  // kept blocks cannot be freed during capture
    trim();
    data = device_malloc(size);
  }
  if (data == nullptr) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    blocks_[data] = {size, stream, t_pool};
    used_ += size;
  }
  memory_in_use(data, bytes, size);
  return data;
}

void MemoryPool::release(void* data) {
  if (data == nullptr) return;
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(data);
    ensure(it != blocks_.end() && it->second.bytes > 0, "cuda", "a block was released that is not in use.");
    block = it->second;
  }
  memory_idle(data, block.bytes);
  const Stream stream = current_stream();
  if (stream != block.stream) {  // the next user on the owner's stream must come after the last use on this one
    const Event event = event_create();
    event_record(event, stream);
    stream_wait(block.stream, event);
    event_destroy(event);
  }
  const std::lock_guard lock(mutex_);
  block.pool = blocks_.at(data).pool;  // its pool may have been closed meanwhile
  blocks_.erase(data);
  free_[{block.pool, block.stream, block.bytes}].push_back(data);
  used_ -= block.bytes;
  if (block.pool == 0) kept_ += block.bytes;
}

void MemoryPool::trim() {
  device_synchronize();
  const std::lock_guard lock(mutex_);
  for (auto& [key, list] : free_) {
    if (std::get<0>(key) != 0) continue;  // a graph will reuse these
    while (!list.empty()) {
      void* const data = list.back();
      list.pop_back();
      kept_ -= std::get<2>(key);
      device_free(data);
    }
  }
}

int64_t MemoryPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}
int64_t MemoryPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

int MemoryPool::open() {
  const std::lock_guard lock(mutex_);
  return ++last_pool_;
}

void MemoryPool::close(int pool) {
  const std::lock_guard lock(mutex_);
  for (auto& [data, block] : blocks_)
    if (block.pool == pool) block.pool = 0;
  for (auto it = free_.begin(); it != free_.end();) {
    const auto [number, stream, bytes] = it->first;
    if (number != pool) {
      ++it;
      continue;
    }
    auto& all = free_[{0, stream, bytes}];
    all.insert(all.end(), it->second.begin(), it->second.end());
    kept_ += bytes * static_cast<int64_t>(it->second.size());
    it = free_.erase(it);
  }
}

int MemoryPool::select(int pool) {
  const int before = t_pool;
  t_pool = pool;
  return before;
}

MemoryPool& memory_pool() {
  // Never destroyed: tensors with static lifetime are released late.
  static auto* const pools = [] {
    auto* const list = new std::vector<MemoryPool*>;
    for (int d = 0; d < device_count(); ++d) list->push_back(new MemoryPool(d));
    return list;
  }();
  return *pools->at(static_cast<size_t>(current_device_index()));
}

}  // namespace bitgrad::cuda
