// The emulated GPU as its own primitives see it. Every CUDA thread is a fiber; one block (or one cluster of blocks) at
// a time runs on a host thread. A thread gives way only where it waits, so code without barriers runs as plain calls.
// What waits forever is an error that lists who waits where, never a hang.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad::cuda::emulation {

// ---- waiting (called by a running CUDA thread)
// ------------------------------------------------------------------------------ Meets the other threads of the
// caller's warp (threads = 32) or warpgroup (threads = 128: threads 128 i .. 128 i + 127 of the block). When all have
// arrived, `run` is called once with everyone's slot in the order of the lanes; then all go on. Lanes that the block
// does not have get a null slot. All must pass the same `run`.
using RunCollective = void (*)(void* const* slots, int threads);
void collective(int threads, void* slot, RunCollective run, const char* where = "collective");
// The same for the lanes of `mask` of the caller's warp; slots has 32 places, null for lanes outside the mask.
void warp_collective(unsigned mask, void* slot, RunCollective run, const char* where);
// __syncthreads: a block whose threads have partly returned, or wait elsewhere, is an error.
void block_barrier(const char* where = "__syncthreads");
// bar.sync id, threads and bar.arrive: id 0 .. 15 of the block, `threads` a multiple of 32.
void named_barrier(int id, int threads, const char* where = "named barrier");
void named_barrier_arrive(int id, int threads, const char* where = "named barrier arrive");
// All threads of all blocks of the cluster: arrive does not wait, wait waits for the phase of the caller's last arrive.
void cluster_arrive();
void cluster_wait();
// Waits until ready(context). Exact: when nobody can run and no condition holds, that is a deadlock.
void wait_until(bool (*ready)(void* context), void* context, const char* where);
// Lets the others run (a spin loop on memory). Very many turns in which nobody did anything else are a deadlock;
// progress() says that something happened (an mbarrier arrival).
void yield(const char* where = "yield");
void progress();

// ---- where am I
// -------------------------------------------------------------------------------------------------------------
bool inside_kernel();                 // false on a host thread that runs no CUDA thread
int thread_rank();                    // in the block
int lane();                           // thread_rank() % 32
int cluster_rank();                   // of the caller's block in its cluster
int cluster_size();                   // blocks
void* shared_base(int cluster_rank);  // dynamic shared memory of a block of the cluster, aligned to 1024 bytes
int shared_bytes();                   // its size
// Dynamic shared memory begins here in the addresses of PTX: the system keeps what is below.
constexpr uint32_t kSharedBegin = 1024;
// Shared memory of a block by such an address.
inline void* at_shared_address(int cluster_rank, uint32_t address) {
  return static_cast<char*>(shared_base(cluster_rank)) + (address - kSharedBegin);
}
inline uint32_t shared_end() { return kSharedBegin + static_cast<uint32_t>(shared_bytes()); }
int64_t block_serial();  // counts the clusters that this host thread has begun: a key for state per block
// A pseudo-random number of the seed: the same for the same place in the same block, whatever the host threads.
uint32_t random();

// Ends the launch with an error that names kernel, block and thread.
[[noreturn]] void fail_thread(const std::string& fact);

// How many kernels of this name (LaunchShape::name, else that of the function) have run, those of graphs too.
int64_t launches(const std::string& kernel);
// Of all kernels.
int64_t launches();

// ---- settings of the emulated machine
// --------------------------------------------------------------------------------------- Order in which threads and
// blocks run: 0 is the natural order, any other value a permutation. The default is BITGRAD_EMULATION_SEED, else 0.
void set_seed(uint64_t seed);
uint64_t seed();
// What device_properties says of all emulated devices. wgmma: the device runs sm_90a code.
void set_capability(int major, int minor, bool wgmma);
// Streams made by stream_create always run late: when somebody waits for them. With this the main streams do, too.
void set_lazy_main_streams(bool lazy);

}  // namespace bitgrad::cuda::emulation
