// NCCL, loaded at run time and never linked: ranks that are connected by it. It moves bytes only, so that sums are ours
// (docs/numerics.md section 6): its own sums depend on the topology.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/dist/device_link.h"

namespace bitgrad::cuda {

// The library functions in use, and where they were found.
struct Nccl;

// Names to try, in order: $BITGRAD_NCCL alone if it is set; otherwise the soname, and the folders of Python packages
// and toolkits (library_candidates).
std::vector<std::string> nccl_candidates();
// The first candidate that loads, has all functions and is of version 2.18 or newer. If there is none, returns nullptr
// and sets `why` to what is wrong with each.
std::shared_ptr<Nccl> open_nccl(const std::vector<std::string>& candidates, std::string& why);
// "NCCL 2.28.9"
std::string version_of(const Nccl& library);
// The rank of the calling thread among `ranks`, with its current device; all ranks call it. Throws as DeviceLink::wait.
std::unique_ptr<DeviceLink> connect(std::shared_ptr<Nccl> library, Communicator& ranks);

// A communicator that NCCL does not abort in `time` is left behind, with the thread that aborts it; after as long again
// the process ends with the code of the error, since memory of its device can neither be used nor freed.
// Tests set others.
struct NcclEnd {
  std::chrono::milliseconds time;
  void (*end_process)(int code);
};
extern NcclEnd nccl_end;

// With the library of this process, looked up once.
extern const DeviceLinks kNcclLinks;
// "NCCL 2.28.9: libnccl.so.2", or the reason why there is none.
std::string describe_nccl();

}  // namespace bitgrad::cuda
