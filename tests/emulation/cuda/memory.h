// The memory of an emulated device: host memory that the host cannot touch. Outside MemoryAccess (launches and copies)
// every access faults. Fresh memory is poison; the bytes around an allocation are watched.
#pragma once

#include <cstdint>

namespace bitgrad::cuda::emulation {

constexpr int kDevices = 2;  // at most
int devices();               // BITGRAD_EMULATION_DEVICES, else 1
constexpr unsigned char kFreshPoison = 0xA5;

void* arena_allocate(int device, int64_t bytes);  // null when the device is full or for 0 bytes; aligned to 512 bytes
void arena_free(void* data);                      // throws when bytes past the allocation were written
// For an allocator that cuts its own pieces: watches the bytes from data + bytes to data + block_bytes.
void arena_watch(void* data, int64_t bytes, int64_t block_bytes);
void arena_unwatch(void* data);
void arena_check();                     // all watched bytes of all devices; throws with the size of the allocation
int arena_device_of(const void* data);  // -1: not device memory
bool is_host_memory(const void* data);  // of this process, and not of a device
void arena_info(int device, int64_t& free_bytes, int64_t& total_bytes);
void set_arena_bytes(int device, int64_t bytes);

// While one lives, device memory can be read and written.
class MemoryAccess {
 public:
  MemoryAccess();
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

}  // namespace bitgrad::cuda::emulation
