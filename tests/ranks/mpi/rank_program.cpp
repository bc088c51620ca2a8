// rank_program SCENARIO [FOLDER]: a rank that comes to an end in the middle of a run, as the tests of failures want it.
// Every rank prints one line when it ends with an Error, as programs do, and returns its code.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include "bitgrad/base/log.h"
#include "bitgrad/dist/engines.h"

using namespace bitgrad;

namespace {

std::atomic<bool> g_stop = false;  // set in a signal handler, read by the thread of MPI
static_assert(std::atomic<bool>::is_always_lock_free);

void end_rank(Communicator& ranks, const std::string& scenario) {
  if (scenario == "error") {
    const Error why("[data] no samples left", ErrorCode::kData);
    ranks.cancel(why);
    throw Error(why);
  }
  if (scenario == "kill") raise(SIGKILL);
  if (scenario == "stop") raise(SIGSTOP);
  if (scenario == "leave") std::_Exit(0);
  if (scenario == "abort") std::_Exit(9);
  if (scenario == "busy") std::this_thread::sleep_for(std::chrono::milliseconds(1500));
}

int run(const std::string& scenario) {
  set_log_sink([](LogLevel, std::string_view line) { std::fprintf(stderr, "log: %s\n", std::string(line).c_str()); });
  const auto ranks = launched_ranks({.timeout = std::chrono::milliseconds(2000), .stop = [] { return g_stop.load(); }});
  if (ranks == nullptr) {
    std::printf("no ranks\n");
    return 0;
  }
  std::vector<float> values(300000, 1);
  for (int64_t step = 0; step < 20; ++step) {
    if (step == 7 && ranks->rank() == 1) end_rank(*ranks, scenario);
    if (step == 7 && scenario == "busy") raise(SIGTERM);
    const std::vector<float> all = gather_values(*ranks, std::span<const float>(values));
    require(all.back() == 1, "test", "other values");
  }
  std::printf("rank %d of %d ended well\n", static_cast<int>(ranks->rank()), static_cast<int>(ranks->size()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGTERM, [](int) { g_stop = true; });
  const std::string scenario = argc > 1 ? argv[1] : "";
  try {
    return run(scenario);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    if (argc > 2)
      std::ofstream(concat(argv[2], '/', find_launch().value().rank))
          << static_cast<int>(error.code()) << ' ' << error.what();
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: a bug: %s\n", error.what());
    return 70;
  }
}
