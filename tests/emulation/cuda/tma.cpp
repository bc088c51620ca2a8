#include "emulation/cuda/tma.h"

#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "cuda/device/fragments.h"
#include "cuda/device/tma.h"
#include "emulation/cuda/barrier.h"
#include "emulation/cuda/emulation.h"

namespace bitgrad::cuda {
namespace {

constexpr uint64_t kMagic = 0x70616D726F736E65u;

// Contents of an emulated tensor map.
struct Record {
  uint64_t magic;
  const uint8_t* data;
  int64_t columns, rows, stride;
  int64_t box_rows;
};
static_assert(sizeof(Record) <= sizeof(TensorMap));

}  // namespace

TensorMap detail::encode_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows) {
  const Record record{kMagic, static_cast<const uint8_t*>(data), columns, rows, stride, box_rows};
  TensorMap map{};
  std::memcpy(static_cast<void*>(&map), &record, sizeof record);
  return map;
}

namespace emulation {
namespace {

// One copy to one block: a box of a matrix, or consecutive bytes.
struct Copy {
  char* to;
  uint64_t* barrier;
  Record box;  // magic 0: consecutive bytes
  const void* from;
  int64_t column, row;
  uint32_t bytes;
};

struct Pending {
  int64_t serial = -1;
  std::vector<Copy> copies;
};
thread_local Pending g_pending;

void run(const Copy& copy) {
  if (copy.box.magic == 0) {
    std::memcpy(copy.to, copy.from, copy.bytes);
  } else {
    for (int64_t r = 0; r < copy.box.box_rows; ++r) {
      for (int64_t c = 0; c < kBlockBytes; ++c) {
        const int64_t row = copy.row + r, column = copy.column + c;
        const bool inside = row >= 0 && row < copy.box.rows && column >= 0 && column < copy.box.columns;
        copy.to[swizzle128(static_cast<uint32_t>(r * kBlockBytes + c))] =
            inside ? static_cast<char>(copy.box.data[row * copy.box.stride + column]) : char{0};
      }
    }
  }
  barrier_complete(copy.barrier, copy.bytes);
}

void issue(const Copy& copy) {
  if (random() % 2 == 0) return run(copy);
  if (g_pending.serial != block_serial()) g_pending = {block_serial(), {}};
  g_pending.copies.push_back(copy);
  progress();
}

char* at_rank(const void* own, int rank) { return static_cast<char*>(at_shared_address(rank, shared_address(own))); }

}  // namespace

void tma_load(void* to, const TensorMap* map, uint64_t* barrier, int column, int row, uint16_t blocks) {
  Record record;
  std::memcpy(&record, map, sizeof record);
  if (record.magic != kMagic) fail_thread("a TMA copy with a tensor map that make_tensor_map did not make");
  const uint32_t bytes = static_cast<uint32_t>(record.box_rows * kBlockBytes);
  const uint32_t address = shared_address(to);
  if (address % kSwizzleBytes != 0) fail_thread("a swizzled TMA copy must go to a multiple of 1024 bytes");
  if (address + bytes > shared_end()) fail_thread("a TMA copy reaches past shared memory");
  const int own = cluster_rank();
  const unsigned mask = blocks == 0 ? 1u << own : blocks;
  if (mask >> cluster_size() != 0) fail_thread("a TMA multicast to a block that the cluster does not have");
  for (int rank = 0; rank < cluster_size(); ++rank) {
    if ((mask >> rank & 1u) == 0) continue;
    issue(
        {at_rank(to, rank), reinterpret_cast<uint64_t*>(at_rank(barrier, rank)), record, nullptr, column, row, bytes});
  }
}

void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  const uint32_t address = shared_address(to);
  if (address % 16 != 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    fail_thread("a bulk copy needs addresses and a size that are multiples of 16");
  if (address + bytes > shared_end()) fail_thread("a bulk copy reaches past shared memory");
  issue({static_cast<char*>(to), barrier, Record{}, from, 0, 0, bytes});
}

namespace {

struct Store {
  Record box;
  const char* from;
  int64_t column, row;
};
struct StoreGroups {
  std::vector<Store> open;
  std::deque<std::vector<Store>> committed;
};
struct Stores {
  int64_t serial = -1;
  std::map<int, StoreGroups> of_thread;
};
thread_local Stores g_stores;

StoreGroups& own_stores() {
  if (g_stores.serial != block_serial()) g_stores = {block_serial(), {}};
  return g_stores.of_thread[cluster_rank() * 1024 + thread_rank()];
}

// As a GPU does (H100): whole pieces of 16 bytes, also where the matrix ends within one.
void run(const Store& store) {
  const int64_t columns = (store.box.columns + 15) / 16 * 16;
  for (int64_t r = 0; r < store.box.box_rows; ++r) {
    for (int64_t c = 0; c < kBlockBytes; ++c) {
      const int64_t row = store.row + r, column = store.column + c;
      if (row < 0 || row >= store.box.rows || column < 0 || column >= columns) continue;
      const_cast<uint8_t*>(store.box.data)[row * store.box.stride + column] =
          static_cast<uint8_t>(store.from[swizzle128(static_cast<uint32_t>(r * kBlockBytes + c))]);
    }
  }
}

}  // namespace

void tma_store(const TensorMap* map, const void* from, int column, int row) {
  Record record;
  std::memcpy(&record, map, sizeof record);
  if (record.magic != kMagic) fail_thread("a TMA copy with a tensor map that make_tensor_map did not make");
  const uint32_t address = shared_address(from);
  if (address % kSwizzleBytes != 0) fail_thread("a swizzled TMA copy must come from a multiple of 1024 bytes");
  if (address + record.box_rows * kBlockBytes > shared_end()) fail_thread("a TMA copy reaches past shared memory");
  const Store store{record, static_cast<const char*>(from), column, row};
  StoreGroups& own = own_stores();
  if (random() % 2 == 0)
    run(store);
  else
    own.open.push_back(store);
}

void tma_store_commit() {
  StoreGroups& own = own_stores();
  own.committed.push_back(std::move(own.open));
  own.open.clear();
}

void tma_store_wait(size_t pending) {
  StoreGroups& own = own_stores();
  while (own.committed.size() > pending) {
    for (const Store& store : own.committed.front()) run(store);
    own.committed.pop_front();
  }
}

bool stores_are_done() {
  if (g_stores.serial != block_serial()) return true;
  for (const auto& [thread, groups] : g_stores.of_thread)
    if (!groups.open.empty() || !groups.committed.empty()) return false;
  return true;
}

void deliver_copies(uint64_t* barrier) {
  std::vector<Copy>& copies = g_pending.copies;
  if (g_pending.serial != block_serial()) copies.clear();
  for (size_t i = 0; i < copies.size();) {
    if (copies[i].barrier != barrier) {
      ++i;
      continue;
    }
    const Copy copy = copies[i];
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
    run(copy);
  }
}

}  // namespace emulation
}  // namespace bitgrad::cuda
