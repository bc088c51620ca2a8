// Each call that writes a file of a run fails, or the process is killed in its place; and kills at any moment.
#include <cerrno>
#include <csignal>

#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/failing_calls.h"

using namespace bitgrad::test;

namespace {

// Two threads on every machine, so that runs allocate alike.
std::vector<std::string> two_threads(const std::string& folder) { return small_train(folder, {"device.threads=2"}); }

// A run that nothing happens to, and its counts.
struct Uninterrupted {
  Uninterrupted() {
    REQUIRE(cli(two_threads(folder), with_failing_calls({{"FAULT_COUNT", temp.file("counts")}})).code == 0);
  }
  TempDir temp;
  const std::string folder = temp.file("uninterrupted");
};

// What a run left behind: nothing that can be resumed yet, or a checkpoint that goes on to the state of the
// uninterrupted run.
void check_left(const std::string& folder, const std::string& uninterrupted) {
  if (!exists(folder + "/last.safetensors") && !exists(folder + "/best.safetensors")) return;
  CHECK(cli({"eval", folder}).code == 0);
  if (exists(folder + "/best.safetensors")) CHECK(cli({"eval", folder + "/best.safetensors"}).code == 0);
  const ProcessResult resumed = cli({"train", "--resume", folder});
  INFO("resumed: " << resumed.err);
  CHECK(resumed.code == 0);
  CHECK(hash_in(folder) == hash_in(uninterrupted));
  CHECK(metrics_in(folder, true) == metrics_in(uninterrupted, true));
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    CHECK_FALSE(contains(entry.path().filename(), ".tmp-"));
}

}  // namespace

TEST_CASE("a call on a file of a run that fails ends it with 4, a place to be killed with nothing lost") {
  const Uninterrupted uninterrupted;
  const auto run = [](const std::string& folder, const std::string& fault, long call, int error = EIO) {
    return cli(two_threads(folder),
               with_failing_calls({{fault, std::to_string(call)}, {"FAULT_ERRNO", std::to_string(error)}}));
  };
  const long calls = counts_in(uninterrupted.temp.file("counts")).files;
  REQUIRE(calls > 30);
  constexpr int kErrors[] = {EIO, ENOSPC, EDQUOT};
  constexpr long kStep = 5;  // every call in five runs of the gate's length
  for (long n = 1; n <= calls; n += kStep) {
    const std::string folder = uninterrupted.temp.file("fail" + std::to_string(n)),
                      killed = uninterrupted.temp.file("kill" + std::to_string(n));
    const ProcessResult failed = run(folder, "FAULT_FILE", n, kErrors[n / kStep % 3]);
    INFO("call " << n << " of " << calls << ": code " << failed.code << ": " << failed.err);
    if (failed.code != 0) {
      CHECK(failed.code == 4);
      CHECK(count_of(failed.err, "error: [") == 1);
    } else {  // a file that was on the disk already is closed
      CHECK(hash_in(folder) == hash_in(uninterrupted.folder));
      CHECK(metrics_in(folder) == metrics_in(uninterrupted.folder));
    }
    check_left(folder, uninterrupted.folder);
    CHECK(run(killed, "FAULT_KILL", n + 1).code == (n + 1 <= calls ? 128 + SIGKILL : 0));
    check_left(killed, uninterrupted.folder);
  }
}

TEST_CASE("runs killed at any moment, also while they resume, reach the state of an uninterrupted run") {
  constexpr int kRuns = 10;
  const Uninterrupted uninterrupted;
  const CallCounts counts = counts_in(uninterrupted.temp.file("counts"));
  std::mt19937 random(20261122);
  int kills = 0;
  for (int run = 0; run < kRuns; ++run) {
    const std::string folder = uninterrupted.temp.file(std::to_string(run));
    std::vector<std::string> arguments = two_threads(folder);
    ProcessResult r;
    for (int attempt = 0;; ++attempt) {
      const std::string moment = counts.any_moment(random);
      r = cli(arguments, with_failing_calls({{"FAULT_KILL_MALLOC", attempt < 2 ? moment : "-1"}}));
      if (r.code == 0) break;  // also where what is left of a resumed run has fewer allocations
      INFO("run " << run << ", attempt " << attempt << ", allocation " << moment << ": " << r.code << ": " << r.err);
      REQUIRE(r.code == 128 + SIGKILL);
      ++kills;
      if (exists(folder + "/last.safetensors") || exists(folder + "/best.safetensors"))
        arguments = {"train", "--resume", folder};
      else
        std::filesystem::remove_all(folder);  // before the first checkpoint: there is nothing to go on with
    }
    CHECK(hash_in(folder) == hash_in(uninterrupted.folder));
    CHECK(metrics_in(folder, true) == metrics_in(uninterrupted.folder, true));
    CHECK(json_file(folder + "/summary.json").at("best_accuracy") ==
          json_file(uninterrupted.folder + "/summary.json").at("best_accuracy"));
  }
  CHECK(kills >= kRuns);
}

TEST_CASE("a run stopped at any moment saves, ends with its exit code and resumes to the same state") {
  const Uninterrupted uninterrupted;
  const CallCounts counts = counts_in(uninterrupted.temp.file("counts"));
  std::mt19937 random(7);
  int number = 0, stopped = 0;
  for (const auto& [signal, code] :
       {std::pair{SIGTERM, 75}, {SIGINT, 130}, {SIGHUP, 75}, {SIGTERM, 75}, {SIGINT, 130}}) {
    const std::string folder = uninterrupted.temp.file(std::to_string(number++)), moment = counts.any_moment(random);
    const ProcessResult r =
        cli(two_threads(folder),
            with_failing_calls({{"FAULT_KILL_MALLOC", moment}, {"FAULT_SIGNAL", std::to_string(signal)}}));
    INFO(signal << " at allocation " << moment << ": " << r.code << ": " << r.err);
    if (r.code == 128 + signal) continue;  // before the program listens
    CHECK((r.code == code || r.code == 0));
    stopped += r.code == code;
    REQUIRE(exists(folder + "/last.safetensors"));
    check_left(folder, uninterrupted.folder);
  }
  CHECK(stopped >= 3);
}
