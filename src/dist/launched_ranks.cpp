// Ranks that a launcher has started: the one wire of this process.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dist/engines.h"
#include "dist/wire_module.h"
#include "dist/wire_ranks.h"

namespace bitgrad {
namespace {

using detail::WireModule;
using detail::WireThread;

// Never destroyed: its end is the handler of exit, before the destructors of MPI's own libraries.
struct Process {
  std::mutex mutex;
  WireThread* thread = nullptr;
};
Process& process() {
  static auto* const state = new Process;
  return *state;
}

// A launcher of one MPI cannot start ranks of another: each would find itself alone.
void check_kind(const Launch& launch, const WireModule& module) {
  const std::string kind = module.kind;
  const bool other = launch.launcher == "Open MPI"
                         ? kind != "openmpi"
                         : launch.launcher == "PMI" && kind == "openmpi" && std::getenv("SLURM_STEP_ID") == nullptr;
  require(!other, "ranks", "this process was started by ",
          launch.launcher == "PMI" ? "MPICH or a relative" : launch.launcher, " (", launch.source,
          "), and the module bitgrad_mpi.so was built for ", module.version,
          ". Start it with the mpirun of that, or build bitgrad for the other: cmake -DMPI_C_COMPILER=... "
          "-DBITGRAD_WITH_MPI=ON");
}

void check_size(const Launch& launch, const WireThread& thread, const WireModule& module) {
  require(launch.size == 0 || launch.size == thread.size(), "ranks", launch.source, " says rank ", launch.rank, " of ",
          launch.size, ", but ", module.version, " finds ", thread.size(), thread.size() == 1 ? " rank" : " ranks",
          ". Was this program started by another MPI? With Slurm: srun --mpi=pmix");
  require(launch.rank == thread.rank(), "ranks", launch.source, " says rank ", launch.rank, ", but ", module.version,
          " says ", thread.rank());
}

int64_t cores_of(pid_t process_id) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(process_id, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

// mpirun binds each rank to a core, also a single one.
void warn_of_cores(int64_t ranks) {
  const int64_t cores = cores_of(0), of_launcher = cores_of(getppid());
  if (cores > 0 && cores * ranks < of_launcher)
    log(LogLevel::kWarning, concat("ranks: this rank may use ", cores, " of ", of_launcher,
                                   " cores: start the ranks with mpirun --bind-to none"));
}

// The cores that this rank may use; those of the whole machine, which mpirun --bind-to none leaves to all, are shared.
int64_t share_of_cores(int64_t ranks) {
  const int64_t cores = cores_of(0);
  return ranks > 1 && cores == cores_of(getppid()) ? std::max<int64_t>(1, cores / ranks) : cores;
}

void describe(const Launch& launch, WireThread& thread) {
  const RankInfo& info = thread.info();
  thread.set_cores(share_of_cores(info.local_size));
  const int64_t cores = cores_of(0);
  log(LogLevel::kInfo, concat("ranks: ", info.engine, ", rank ", thread.rank(), " of ", thread.size(), " by ",
                              launch.source, ", local rank ", info.local_rank, " of ", info.local_size, " on ",
                              info.host, ", ", cores, cores == 1 ? " core" : " cores"));
  warn_of_cores(info.local_size);
}

WireThread& thread_of(const Launch& launch, std::chrono::milliseconds timeout) {
  Process& state = process();
  const std::lock_guard lock(state.mutex);
  if (state.thread == nullptr) {
    const WireModule& module = detail::load_wire_module();
    check_kind(launch, module);
    state.thread = new WireThread(concat("mpi (", module.version, ")"), module.open, module.end_process, timeout);
    std::atexit([] { process().thread->close(); });
    state.thread->wait_until_open();
    check_size(launch, *state.thread, module);
    describe(launch, *state.thread);
  }
  state.thread->wait_until_open();
  return *state.thread;
}

}  // namespace

std::shared_ptr<Communicator> launched_ranks(const RankOptions& options) {
  constexpr int64_t kMostBytes = (int64_t{1} << 31) - 1;
  require(options.message_bytes > 0 && options.message_bytes <= kMostBytes, "ranks", "got messages of at most ",
          options.message_bytes, " bytes, expected 1 to ", kMostBytes);
  require(options.timeout.count() > 0, "ranks", "got a timeout of ", options.timeout.count(),
          " ms, expected more than 0");
  const std::optional<Launch> launch = find_launch();
  if (!launch) return nullptr;
  if (launch->size == 1) {
    warn_of_cores(1);
    return nullptr;
  }
  WireThread& thread = thread_of(*launch, options.timeout);
  if (thread.size() == 1) return nullptr;
  return thread.communicator(
      {.timeout = options.timeout, .stop = options.stop, .piece = static_cast<size_t>(options.message_bytes)});
}

}  // namespace bitgrad
