// The memory of an emulated device: host memory that the host must not touch. Outside MemoryAccess (launches and
// copies) every access faults. Fresh memory is poisoned, and the bytes after an allocation are watched.
#pragma once

#include <cstdint>

namespace bitgrad::cuda::emulation {

constexpr int kDevices = 4;  // maximum
int devices();               // BITGRAD_EMULATION_DEVICES, otherwise 1
constexpr unsigned char kFreshPoison = 0xA5;

void* arena_allocate(int device, int64_t bytes);  // aligned to 512 bytes; nullptr for 0 bytes or if the device is full
void arena_free(void* data);                      // throws if bytes past the allocation were written
// For an allocator that splits its own pieces: watches the bytes from data + bytes to data + block_bytes.
void arena_watch(void* data, int64_t bytes, int64_t block_bytes);
void arena_unwatch(void* data);
void arena_check();                     // all watched bytes of all devices; throws with the size of the allocation
int arena_device_of(const void* data);  // -1: not device memory
bool is_host_memory(const void* data);  // memory of this process, but not of a device
// BITGRAD_EMULATION_UNIFIED=1: host and device read and write each other's memory, as on systems with unified memory.
bool unified();
void arena_info(int device, int64_t& free_bytes, int64_t& total_bytes);
void set_arena_bytes(int device, int64_t bytes);

// While an instance exists, device memory can be read and written.
class MemoryAccess {
 public:
  MemoryAccess();
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

}  // namespace bitgrad::cuda::emulation
