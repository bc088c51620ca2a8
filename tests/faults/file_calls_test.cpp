// Each call that writes a file of a run fails, or the process is killed in its place; and kills at any moment.
#include <cerrno>
#include <csignal>
#include <random>

#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad::test;

namespace {

std::string calm_run(const TempDir& temp) {
  std::string calm = temp.file("calm");
  REQUIRE(cli(small_train(calm)).code == 0);
  return calm;
}

// What a run left behind: nothing that can be resumed yet, or a checkpoint that goes on to the state of the calm run.
void check_left(const std::string& folder, const std::string& calm) {
  if (!exists(folder + "/last.safetensors") && !exists(folder + "/best.safetensors")) return;
  CHECK(cli({"eval", folder}).code == 0);
  if (exists(folder + "/best.safetensors")) CHECK(cli({"eval", folder + "/best.safetensors"}).code == 0);
  const ProcessResult resumed = cli({"train", "--resume", folder});
  INFO("resumed: " << resumed.err);
  CHECK(resumed.code == 0);
  CHECK(hash_in(folder) == hash_in(calm));
  CHECK(metrics_in(folder, true) == metrics_in(calm, true));
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    CHECK_FALSE(contains(entry.path().filename(), ".tmp-"));
}

}  // namespace

#if !BITGRAD_SANITIZED

TEST_CASE("a call on a file of a run that fails ends it with 4, a place to be killed with nothing lost") {
  TempDir temp;
  const std::string calm = calm_run(temp);
  const Process::Environment shim{{"LD_PRELOAD", build_path("bin/tests/libfailing_calls.so")}};
  const auto with = [&](const std::string& name, long value, int error = EIO) {
    Process::Environment all = shim;
    all.push_back({name, std::to_string(value)});
    all.push_back({"FAULT_ERRNO", std::to_string(error)});
    all.push_back({"FAULT_COUNT", temp.file("counts")});
    return all;
  };
  REQUIRE(cli(small_train(temp.file("counted")), with("FAULT_FILE", -1)).code == 0);
  std::istringstream counts(slurp(temp.file("counts")));
  long allocations = 0, calls = 0;
  REQUIRE(counts >> allocations >> calls);
  REQUIRE(calls > 30);
  constexpr int kErrors[] = {EIO, ENOSPC, EDQUOT};
  constexpr long kStep = 3;  // every call in three runs of the gate's length
  for (long n = 1; n <= calls; n += kStep) {
    const std::string folder = temp.file("fail" + std::to_string(n)), killed = temp.file("kill" + std::to_string(n));
    const ProcessResult failed = cli(small_train(folder), with("FAULT_FILE", n, kErrors[n / kStep % 3]));
    INFO("call " << n << " of " << calls << ": code " << failed.code << ": " << failed.err);
    if (failed.code != 0) {
      CHECK(failed.code == 4);
      CHECK(count_of(failed.err, "error: [") == 1);
    } else {  // a file that was on the disk already is closed
      CHECK(hash_in(folder) == hash_in(calm));
      CHECK(metrics_in(folder) == metrics_in(calm));
    }
    check_left(folder, calm);
    CHECK(cli(small_train(killed), with("FAULT_KILL", n + 1)).code == (n + 1 <= calls ? 128 + SIGKILL : 0));
    check_left(killed, calm);
  }
}

#endif

TEST_CASE("runs that are killed at any moment, and killed while they are resumed, come to the state of the calm run") {
  constexpr int kRuns = 10;
  TempDir temp;
  const auto start = std::chrono::steady_clock::now();
  const std::string calm = calm_run(temp);
  const auto duration = std::chrono::steady_clock::now() - start;
  std::mt19937 random(20261122);
  int kills = 0;
  for (int run = 0; run < kRuns; ++run) {
    const std::string folder = temp.file(std::to_string(run));
    std::vector<std::string> arguments = small_train(folder);
    ProcessResult r;
    for (int attempt = 0;; ++attempt) {
      Process process(with_program(arguments));
      if (attempt < 2) {
        std::this_thread::sleep_for(duration * (random() % 1000) / 1000);
        process.signal(SIGKILL);
      }
      r = process.wait();
      if (r.code == 0) break;
      INFO("run " << run << ", attempt " << attempt << ": " << r.code << ": " << r.err);
      REQUIRE(r.code == 128 + SIGKILL);
      ++kills;
      if (exists(folder + "/last.safetensors") || exists(folder + "/best.safetensors"))
        arguments = {"train", "--resume", folder};
      else
        std::filesystem::remove_all(folder);  // before the first checkpoint: there is nothing to go on with
    }
    CHECK(hash_in(folder) == hash_in(calm));
    CHECK(metrics_in(folder, true) == metrics_in(calm, true));
    CHECK(json_file(folder + "/summary.json").at("best_accuracy") ==
          json_file(calm + "/summary.json").at("best_accuracy"));
  }
  CHECK(kills > 0);
}

TEST_CASE("a run that is asked to stop at any moment saves, says so by its code and goes on to the same state") {
  TempDir temp;
  const auto start = std::chrono::steady_clock::now();
  const std::string calm = calm_run(temp);
  const auto duration = std::chrono::steady_clock::now() - start;
  std::mt19937 random(7);
  int number = 0, stopped = 0;
  for (const auto& [signal, code] :
       {std::pair{SIGTERM, 75}, {SIGINT, 130}, {SIGHUP, 75}, {SIGTERM, 75}, {SIGINT, 130}}) {
    const std::string folder = temp.file(std::to_string(number++));
    Process process(with_program(small_train(folder)));
    std::this_thread::sleep_for(duration * (200 + random() % 700) / 1000);
    process.signal(signal);
    const ProcessResult r = process.wait();
    INFO(signal << ": " << r.code << ": " << r.err);
    if (r.code == 128 + signal) continue;  // before the program listens
    CHECK((r.code == code || r.code == 0));
    stopped += r.code == code;
    REQUIRE(exists(folder + "/last.safetensors"));
    check_left(folder, calm);
  }
  CHECK(stopped > 0);
}
