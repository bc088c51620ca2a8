// A library with the functions of NCCL that are used, for ranks that are threads of this process. It copies between the
// memories of emulated devices once both sides have called, and can be told to fail or never to end.
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "emulation/cuda/memory.h"

namespace {

constexpr int kSuccess = 0, kInvalid = 4, kInProgress = 7;  // ncclResult_t

struct Comm {
  int id = 0, rank = 0, size = 0;
  int open = 0;        // movements that have not ended
  bool ended = false;  // finalized
  bool aborted = false;
};
struct Movement {
  Comm* comm = nullptr;
  int peer = 0;
  const void* from = nullptr;  // of a send
  void* to = nullptr;          // of a receive
  size_t bytes = 0;
};
struct Channel {
  std::deque<Movement> sent, received;
};

std::mutex mutex;  // guards all below
std::condition_variable aborted;
int ids = 0;
std::map<int, std::vector<std::unique_ptr<Comm>>> groups;      // by id; kept, as calls may come late
std::map<std::pair<int, std::pair<int, int>>, Channel> wires;  // by id, sender, receiver
thread_local std::vector<Movement> group;
thread_local int depth = 0;  // of groups

// Whether all ranks of the communicator have aborted theirs.
bool all_aborted(const Comm& comm) {
  const auto& ranks = groups[comm.id];
  return std::cmp_equal(ranks.size(), comm.size) &&
         std::all_of(ranks.begin(), ranks.end(), [](const auto& other) { return other->aborted; });
}

void meet(const Movement& one) {
  const bool sends = one.from != nullptr;
  Channel& wire =
      wires[{one.comm->id, sends ? std::pair(one.comm->rank, one.peer) : std::pair(one.peer, one.comm->rank)}];
  ++one.comm->open;
  (sends ? wire.sent : wire.received).push_back(one);
  while (!wire.sent.empty() && !wire.received.empty()) {
    const Movement from = wire.sent.front(), to = wire.received.front();
    if (from.bytes != to.bytes) return;  // NCCL does not find this either: both hang
    {
      const bitgrad::cuda::emulation::MemoryAccess access;
      std::memcpy(to.to, from.from, to.bytes);
    }
    --from.comm->open;
    --to.comm->open;
    wire.sent.pop_front();
    wire.received.pop_front();
  }
}

}  // namespace

extern "C" {
// What a test says: the function that fails, and on which rank (-1: all); bits of the ranks on which nothing ends; the
// version.
const char* fake_nccl_fails = "";
int fake_nccl_rank = -1, fake_nccl_hangs = 0, fake_nccl_version = 21800;
// How CommAbort ends: 0 at once, 1 once all ranks of the communicator have called it, 2 not before this is 0.
int fake_nccl_abort = 0;
// What it has seen: ends of communicators, and calls of CommAbort that have returned.
int fake_nccl_destroyed = 0, fake_nccl_aborted = 0, fake_nccl_abort_returned = 0;

static bool told_to_fail(const char* function, int rank) {
  return std::strcmp(fake_nccl_fails, function) == 0 && (fake_nccl_rank < 0 || fake_nccl_rank == rank);
}

struct FakeId {
  char bytes[128];
};
struct FakeConfig {
  size_t size;
  unsigned magic, version;
  int blocking;
};

int ncclGetVersion(int* version) {
  *version = fake_nccl_version;
  return kSuccess;
}
int ncclGetUniqueId(FakeId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id, &++ids, sizeof(ids));
  return told_to_fail("GetUniqueId", 0) ? 2 : kSuccess;
}
int ncclCommInitRankConfig(void** comm, int size, FakeId id, int rank, FakeConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || config->size < 48) return kInvalid;
  if (told_to_fail("CommInitRankConfig", rank)) return kInvalid;
  const std::lock_guard lock(mutex);
  int number = 0;
  std::memcpy(&number, &id, sizeof(number));
  *comm = groups[number].emplace_back(std::make_unique<Comm>(Comm{number, rank, size})).get();
  return kInProgress;
}
int ncclCommGetAsyncError(void* comm, int* state) {
  const auto* const c = static_cast<const Comm*>(comm);
  const std::lock_guard lock(mutex);
  const bool connected = std::cmp_equal(groups[c->id].size(), c->size);
  *state = connected && c->open == 0 && (fake_nccl_hangs >> c->rank & 1) == 0 ? kSuccess : kInProgress;
  if (connected && told_to_fail("CommGetAsyncError", c->rank)) *state = 6;
  return kSuccess;
}
int ncclGroupStart() {
  if (depth++ == 0) group.clear();
  return kSuccess;
}
int ncclSend(const void* data, size_t bytes, int type, int peer, void* comm, void*) {
  if (type != 1 || depth == 0 || told_to_fail("Send", static_cast<Comm*>(comm)->rank)) return kInvalid;
  group.push_back({static_cast<Comm*>(comm), peer, data, nullptr, bytes});
  return kInProgress;
}
int ncclRecv(void* data, size_t bytes, int type, int peer, void* comm, void*) {
  if (type != 1 || depth == 0) return kInvalid;
  group.push_back({static_cast<Comm*>(comm), peer, nullptr, data, bytes});
  return kInProgress;
}
int ncclGroupEnd() {
  if (depth == 0) return kInvalid;
  if (--depth > 0) return kSuccess;
  const std::lock_guard lock(mutex);
  for (const Movement& one : group) meet(one);
  return kInProgress;
}
int ncclCommFinalize(void* comm) {
  static_cast<Comm*>(comm)->ended = true;
  return kInProgress;
}
int ncclCommDestroy(void* comm) {
  const std::lock_guard lock(mutex);
  if (static_cast<Comm*>(comm)->ended) ++fake_nccl_destroyed;
  return kSuccess;
}
int ncclCommAbort(void* comm) {
  auto* const c = static_cast<Comm*>(comm);
  std::unique_lock lock(mutex);
  ++fake_nccl_aborted;
  c->aborted = true;
  for (auto& wire : wires)
    for (auto* list : {&wire.second.sent, &wire.second.received})
      std::erase_if(*list, [&](const Movement& m) { return m.comm == c; });
  aborted.notify_all();
  if (fake_nccl_abort == 1) aborted.wait(lock, [&] { return all_aborted(*c); });
  if (fake_nccl_abort == 2) aborted.wait(lock, [] { return fake_nccl_abort == 0; });
  ++fake_nccl_abort_returned;
  return kSuccess;
}
// For a test, which has other threads: sets fake_nccl_abort, and returns fake_nccl_abort_returned.
int fake_nccl_set_abort(int how) {
  const std::lock_guard lock(mutex);
  fake_nccl_abort = how;
  aborted.notify_all();
  return fake_nccl_abort_returned;
}
const char* ncclGetLastError(void*) { return "told to"; }
const char* ncclGetErrorString(int status) { return status == 6 ? "remote error" : "some error"; }
}
