// The part of NCCL's C interface (nccl.h of 2.18 and newer) that is used here, declared in this file, so that no header
// of the library is needed.
#include "cuda/dist/nccl.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "bitgrad/base/log.h"
#include "cuda/runtime/library_files.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

// Not in the unnamed namespace, because Nccl has members of these types.
struct NcclId {
  std::array<char, 128> bytes{};
};
struct NcclConfig {  // of version 2.18; the library reads `size` bytes
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 0, cluster = INT_MIN, least_blocks = INT_MIN, most_blocks = INT_MIN;  // INT_MIN: the library's own
  const char* network = nullptr;
  int split_share = INT_MIN;
};

// A communicator of NCCL and a stream are void*; of ncclComm_t, ncclUniqueId* and cudaStream_t.
#define BITGRAD_NCCL_FUNCTIONS(X)                                     \
  X(int, GetVersion, (int*))                                          \
  X(int, GetUniqueId, (NcclId*))                                      \
  X(int, CommInitRankConfig, (void**, int, NcclId, int, NcclConfig*)) \
  X(int, CommGetAsyncError, (void*, int*))                            \
  X(int, Send, (const void*, size_t, int, int, void*, void*))         \
  X(int, Recv, (void*, size_t, int, int, void*, void*))               \
  X(int, GroupStart, ())                                              \
  X(int, GroupEnd, ())                                                \
  X(int, CommFinalize, (void*))                                       \
  X(int, CommDestroy, (void*))                                        \
  X(int, CommAbort, (void*))                                          \
  X(const char*, GetLastError, (void*))                               \
  X(const char*, GetErrorString, (int))

struct Nccl {
#define BITGRAD_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  BITGRAD_NCCL_FUNCTIONS(BITGRAD_MEMBER)
#undef BITGRAD_MEMBER
  std::string path = {};
  int version = 0;
};

namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;
using Clock = std::chrono::steady_clock;

constexpr int kSuccess = 0, kRemoteError = 6, kInProgress = 7;  // ncclResult_t
constexpr int kBytes = 1;                                       // ncclUint8
constexpr int kLeastVersion = 21800;
constexpr std::chrono::microseconds kSleep{20};
constexpr std::chrono::seconds kEndTime{5};
constexpr std::chrono::seconds kCauseTime{1};  // in which a rank that has failed says why, or is found to be gone
constexpr const char* kHint = "Hint: NCCL_DEBUG=WARN prints why; BITGRAD_NCCL=off sends by the hosts";

// Until `ended`, or false after `most`.
bool wait_for(Clock::duration most, const std::function<bool()>& ended) {
  for (const auto start = Clock::now(); !ended(); std::this_thread::sleep_for(kSleep))
    if (Clock::now() - start >= most) return false;
  return true;
}

// Aborts a communicator in a thread: NCCL may wait for other ranks there, or for a device that is stuck.
class Abort {
 public:
  static void in_time(std::shared_ptr<Nccl> library, void* comm, ErrorCode code) {
    const NcclEnd end = nccl_end;
    const auto abort = std::make_shared<Abort>();
    std::thread([abort, library = std::move(library), comm] {
      library->CommAbort(comm);
      abort->set_ended();
    }).detach();
    if (abort->ends_in(end.time)) return;
    const double time = std::chrono::duration<double>(end.time).count();
    log(LogLevel::kError, concat("[ranks] NCCL: ncclCommAbort did not return in ", time, " s: this process ends in ",
                                 time, " s, unless it does"));
    std::thread([abort, end, code] {
      if (!abort->ends_in(end.time)) end.end_process(static_cast<int>(code));
    }).detach();
  }

 private:
  void set_ended() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  bool ends_in(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return ended_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;  // guarded by the mutex
};

class NcclLink final : public DeviceLink {
 public:
  NcclLink(std::shared_ptr<Nccl> library, Communicator& ranks) : library_(std::move(library)) {
    NcclId id;
    int status = kSuccess;
    if (ranks.rank() == 0) status = library_->GetUniqueId(&id);
    const int status_of_0 = gather_values(ranks, std::span<const int>(&status, 1))[0];
    if (status_of_0 != kSuccess) fail(ranks, "ncclGetUniqueId of rank 0", status_of_0);
    id = gather_values(ranks, std::span<const NcclId>(&id, 1))[0];
    NcclConfig config;
    native_stream(current_stream());  // makes the device the current one of CUDA
    check(ranks, "ncclCommInitRankConfig",
          library_->CommInitRankConfig(&comm_, static_cast<int>(ranks.size()), id, static_cast<int>(ranks.rank()),
                                       &config));
    complete(ranks, "ncclCommInitRankConfig");
  }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink() override {
    if (comm_ != nullptr) close();
    event_destroy(ended_);
  }

  void exchange(Communicator& ranks, std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    move(
        ranks, "exchange", [&](int64_t r) { return to[static_cast<size_t>(r)]; }, from);
  }
  void gather(Communicator& ranks, ConstBytes own, std::span<const Bytes> all) override {
    move(
        ranks, "gather", [&](int64_t) { return own; }, all);
  }
  void end() noexcept override {
    if (!failure_) failure_ = Error("[ranks] NCCL has ended on this rank", ErrorCode::kDevice);
    abort_comm();
  }
  void wait(Communicator& ranks) override {
    require_alive();
    if (ended_ == nullptr) ended_ = event_create();
    event_record(ended_, current_stream());
    poll(ranks, "the last movement", [&](int state) {
      check(ranks, "the last movement", state);
      return state == kSuccess && event_done(ended_);
    });
  }

 private:
  template <typename PartOf>
  void move(Communicator& ranks, const char* what, const PartOf& to, std::span<const Bytes> from) {
    require_alive();
    void* const stream = native_stream(current_stream());
    int status = library_->GroupStart();
    const auto good = [&] { return status == kSuccess || status == kInProgress; };
    for (int64_t r = 0; r < ranks.size() && good(); ++r) {
      if (r == ranks.rank()) continue;
      const int peer = static_cast<int>(r);
      const ConstBytes sent = to(r);
      const Bytes received = from[static_cast<size_t>(r)];
      if (!sent.empty()) status = library_->Send(sent.data(), sent.size(), kBytes, peer, comm_, stream);
      if (!received.empty() && good())
        status = library_->Recv(received.data(), received.size(), kBytes, peer, comm_, stream);
      count(ranks, std::ssize(sent));
    }
    const int end = library_->GroupEnd();  // a group of the thread must not stay open
    check(ranks, what, good() ? end : status);
    complete(ranks, what);
  }

  // Calls return before they have queued their work: until they have.
  void complete(Communicator& ranks, const char* what) {
    poll(ranks, what, [&](int state) {
      check(ranks, what, state);
      return state == kSuccess;
    });
  }
  // Until `ended` of the state of the communicator. Looks at the other ranks and the clock.
  void poll(Communicator& ranks, const char* what, const std::function<bool(int)>& ended) {
    const bool in_time = wait_for(ranks.timeout(), [&] {
      int state = kSuccess;
      look_at(ranks);
      check(ranks, what, library_->CommGetAsyncError(comm_, &state));
      return ended(state);
    });
    if (in_time) return;
    hear_cause(ranks);
    give_up(ranks, Error(concat("[ranks] NCCL: ", what, ": not ended in ",
                                std::chrono::duration<double>(ranks.timeout()).count(), " s"),
                         ErrorCode::kDevice));
  }
  // Whether another rank has cancelled.
  void look_at(Communicator& ranks) {
    try {
      ranks.check();
    } catch (const Error& why) {
      abort(why);
    }
  }
  void hear_cause(Communicator& ranks) {
    wait_for(kCauseTime, [&] {
      look_at(ranks);
      return false;
    });
  }
  void check(Communicator& ranks, const char* what, int status) {
    if (status != kSuccess && status != kInProgress) fail(ranks, what, status);
  }
  [[noreturn]] void fail(Communicator& ranks, const char* what, int status) {
    if (status == kRemoteError) hear_cause(ranks);  // that rank knows it
    const char* const more = comm_ != nullptr ? library_->GetLastError(comm_) : nullptr;
    give_up(ranks, Error(concat("[ranks] NCCL: ", what, ": got status ", status, " (", library_->GetErrorString(status),
                                more != nullptr && *more != '\0' ? concat("; ", more) : std::string(),
                                "), expected 0. ", kHint),
                         ErrorCode::kDevice));
  }
  // The other ranks first: NCCL may wait for them to abort, too.
  [[noreturn]] void give_up(Communicator& ranks, const Error& why) {
    ranks.cancel(why);
    abort(why);
  }
  // From now on nothing is moved any more.
  [[noreturn]] void abort(const Error& why) {
    failure_ = why;
    abort_comm();
    throw Error(why);
  }
  void abort_comm() {
    if (comm_ != nullptr)
      Abort::in_time(library_, std::exchange(comm_, nullptr), failure_ ? failure_->code() : ErrorCode::kDevice);
  }
  void require_alive() const {
    if (failure_) throw Error(*failure_);
  }
  // Other ranks may still read from this one.
  void close() {
    int state = library_->CommFinalize(comm_);
    const bool ended = wait_for(kEndTime, [&] {
      if (state == kInProgress && library_->CommGetAsyncError(comm_, &state) != kSuccess) return true;
      return state != kInProgress;
    });
    if (ended && state == kSuccess)
      library_->CommDestroy(comm_);
    else
      abort_comm();
  }

  std::shared_ptr<Nccl> library_;
  void* comm_ = nullptr;
  Event ended_ = nullptr;
  std::optional<Error> failure_;
};

// What is wrong with a candidate; empty if it is loaded.
std::string load(const std::string& name, Nccl& library) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return dlerror();
  const char* missing = nullptr;
#define BITGRAD_LOAD(result, function, parameters)                                            \
  library.function = reinterpret_cast<result(*) parameters>(dlsym(handle, "nccl" #function)); \
  if (library.function == nullptr && missing == nullptr) missing = "nccl" #function;
  BITGRAD_NCCL_FUNCTIONS(BITGRAD_LOAD)
#undef BITGRAD_LOAD
  std::string why;
  if (missing != nullptr)
    why = concat(name, " has no function ", missing);
  else if (const int status = library.GetVersion(&library.version); status != kSuccess)
    why = concat(name, ": ncclGetVersion: got status ", status);
  else if (library.version < kLeastVersion)
    why = concat(name, ": got ", version_of(library), ", expected 2.18 or newer");
  if (!why.empty()) dlclose(handle);
  library.path = name;
  return why;
}

struct Found {
  std::shared_ptr<Nccl> library;
  std::string why;
  Found() {
    if (const auto names = nccl_candidates(); names == std::vector<std::string>{"off"})
      why = "BITGRAD_NCCL is off";
    else
      library = open_nccl(names, why);
  }
};
// Never destroyed: the library may already be unloaded at exit.
Found& found() {
  static auto* const once = new Found;
  return *once;
}

void end_process(int code) {
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

NcclEnd nccl_end{kEndTime, end_process};

std::vector<std::string> nccl_candidates() {
  LibraryFiles files{.variable = "BITGRAD_NCCL"};
#if !defined(BITGRAD_CUDA_EMULATED)  // whose devices no library knows
  files.names = {"libnccl.so.2"};
  files.in_wheels = {"nvidia/nccl/lib/libnccl.so.2"};
#endif
  return library_candidates(files);
}

std::shared_ptr<Nccl> open_nccl(const std::vector<std::string>& candidates, std::string& why) {
  if (candidates.empty()) why = "set BITGRAD_NCCL";
  for (const std::string& name : candidates) {
    auto library = std::make_shared<Nccl>();
    const std::string wrong = load(name, *library);
    if (wrong.empty()) return library;
    why += concat(why.empty() ? "" : "; ", wrong);
  }
  return nullptr;
}

std::string version_of(const Nccl& library) {
  return concat("NCCL ", library.version / 10000, '.', library.version / 100 % 100, '.', library.version % 100);
}

std::unique_ptr<DeviceLink> connect(std::shared_ptr<Nccl> library, Communicator& ranks) {
  return std::make_unique<NcclLink>(std::move(library), ranks);
}

const DeviceLinks kNcclLinks{[](std::string& why) {
                               const Found& once = found();
                               if (once.library == nullptr) why = concat("NCCL was not found: ", once.why);
                               return once.library != nullptr ? version_of(*once.library) : "";
                             },
                             [](Communicator& ranks) { return connect(found().library, ranks); }};

std::string describe_nccl() {
  const Found& once = found();
  return once.library != nullptr ? concat(version_of(*once.library), ": ", once.library->path)
                                 : concat("NCCL was not found: ", once.why);
}

}  // namespace bitgrad::cuda
