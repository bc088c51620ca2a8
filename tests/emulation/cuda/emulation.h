// The emulated GPU as seen by its own primitives. Every CUDA thread is a fiber; a host thread runs one block (or one
// cluster of blocks) at a time. A thread yields only where it waits, so code without barriers runs as plain calls. A
// deadlock is an error that lists who waits where, never a hang.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad::cuda::emulation {

// ---- waiting (called by a running CUDA thread)
// Meets the other threads of the caller's warp (threads = 32) or warpgroup (threads = 128: threads 128 i .. 128 i + 127
// of the block). When all have arrived, `run` is called once with everyone's slot in lane order; then all continue.
// Lanes that the block does not have get a nullptr slot. All must pass the same `run`.
using RunCollective = void (*)(void* const* slots, int threads);
void collective(int threads, void* slot, RunCollective run, const char* where = "collective");
// The same for the lanes in `mask` of the caller's warp; slots has 32 entries, nullptr for lanes outside the mask.
void warp_collective(unsigned mask, void* slot, RunCollective run, const char* where);
// __syncthreads. An error if some threads of the block have returned or wait elsewhere.
void block_barrier(const char* where = "__syncthreads");
// bar.sync id, threads and bar.arrive: id 0 .. 15 within the block, `threads` a multiple of 32.
void named_barrier(int id, int threads, const char* where = "named barrier");
void named_barrier_arrive(int id, int threads, const char* where = "named barrier arrive");
// For all threads of all blocks of the cluster. wait waits for the phase of the caller's last arrive.
void cluster_arrive();
void cluster_wait();
// Waits until ready(context). Exact: if no thread can run and no condition holds, that is a deadlock.
void wait_until(bool (*ready)(void* context), void* context, const char* where);
// Lets other threads run (for spin loops on memory). Very many turns in which every thread only spins are a deadlock;
// progress() reports other progress (an mbarrier arrival).
void yield(const char* where = "yield");
void progress();

// ---- position of the caller
bool inside_kernel();                 // false on a host thread that is not running a CUDA thread
int thread_rank();                    // within the block
int lane();                           // thread_rank() % 32
int cluster_rank();                   // rank of the caller's block in its cluster
int cluster_size();                   // in blocks
void* shared_base(int cluster_rank);  // dynamic shared memory of a block of the cluster, aligned to 1024 bytes
int shared_bytes();                   // its size
// Start of dynamic shared memory in PTX addresses: the system reserves what is below.
constexpr uint32_t kSharedBegin = 1024;
// Converts such an address in a block to a host pointer.
inline void* at_shared_address(int cluster_rank, uint32_t address) {
  return static_cast<char*>(shared_base(cluster_rank)) + (address - kSharedBegin);
}
inline uint32_t shared_end() { return kSharedBegin + static_cast<uint32_t>(shared_bytes()); }
int64_t block_serial();  // counts the clusters that this host thread has started: a key for per-block state
// A pseudo-random value derived from the seed: the same at the same place in the same block, on any host thread.
uint32_t random();

// Ends the launch with an error that names kernel, block and thread.
[[noreturn]] void fail_thread(const std::string& fact);

// ---- settings of the emulated machine
// Order in which threads and blocks run: 0 is the natural order, any other value a permutation. Default:
// BITGRAD_EMULATION_SEED, otherwise 0.
void set_seed(uint64_t seed);
uint64_t seed();
// device_properties of all emulated devices. wgmma: the device runs sm_90a code.
void set_capability(int major, int minor, bool wgmma);
// Streams made by stream_create always defer work until it is waited for. With `lazy`, the main streams do so too.
void set_lazy_main_streams(bool lazy);

}  // namespace bitgrad::cuda::emulation
