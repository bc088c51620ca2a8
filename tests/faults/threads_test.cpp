// A system that gives fewer threads, or less memory, than were asked for.
#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/failing_calls.h"

using namespace bitgrad::test;

TEST_CASE("where a thread cannot be made, a training goes on with fewer to the same state, and warns once") {
  TempDir temp;
  const std::string uninterrupted = temp.file("uninterrupted");
  REQUIRE(cli(small_train(uninterrupted, {"device.threads=1"})).code == 0);
  for (const int given : {0, 1, 2, 5}) {
    const std::string folder = temp.file(std::to_string(given));
    const ProcessResult r =
        cli(small_train(folder, {"device.threads=8"}), with_failing_calls({{"FAULT_THREADS", std::to_string(given)}}));
    INFO(given << ": " << r.err);
    CHECK(r.code == 0);
    CHECK(hash_in(folder) == hash_in(uninterrupted));
    CHECK(count_of(r.err, "warning: the system provides no more than") == 1);
    CHECK(contains(r.err, "of 8 threads (a memory or process limit)"));
    CHECK(contains(r.err, "warning: no thread to prefetch batches"));
  }
}

namespace {

ProcessResult within(int megabytes, const std::vector<std::string>& arguments) {
  std::string command = "ulimit -v " + std::to_string(megabytes * 1024) + " && exec " + kProgram;
  for (const std::string& word : arguments) command += " '" + word + "'";
  return run_program({"sh", "-c", command});
}

// Below it the loader cannot map the shared libraries, which are as large as the system has them.
int least_to_start() {
  constexpr int kStep = 10, kMost = 1000;
  for (int megabytes = kStep; megabytes < kMost; megabytes += kStep)
    if (within(megabytes, {"--version"}).code == 0) return megabytes;
  return kMost;
}

}  // namespace

TEST_CASE("many threads in little memory: a run ends well or reports that memory is exhausted") {
  TempDir temp;
  const int least = least_to_start();
  REQUIRE(least < 400);
  int number = 0;
  for (const int more : {0, 10, 20, 40, 80, 120, 180, 300, 900}) {
    const ProcessResult r =
        within(least + more, small_train(temp.file(std::to_string(number++)), {"device.threads=64"}));
    INFO(least << " + " << more << " MiB: code " << r.code << ": " << r.err);
    CHECK((r.code == 0 || r.code == 4));
    if (r.code == 4) CHECK((contains(r.err, "memory") || contains(r.err, "Cannot allocate")));
    CHECK_FALSE(contains(r.err, "bug"));
  }
}
