// A sweep that is stopped or killed, and begun again; two in one folder. And watch, on damaged lines.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::string> sweep_of(const std::string& out, const std::string& stop) {
  return {kProgram,
          "sweep",
          source_path("configs/digits_mlp_w1a1.yaml"),
          "run.bits=strict",
          "data.train.size=200",
          "data.test.size=90",
          "batch.global=10",
          "batch.micro=10",
          "model.layers.1.linear.out=32",
          "model.layers.4.linear.out=32",
          "checkpoint.every=10 steps",
          "optim.lr=0.01,0.02",
          "train.stop=" + stop,
          "--out",
          out};
}

// The folder of the first run, once it has a checkpoint.
std::string first_run(const std::string& out) {
  for (int i = 0; i < 60'000; ++i) {
    if (file_system().exists(out))
      for (const std::string& name : file_system().list(out))
        if (const std::string run = concat(out, '/', name); file_system().exists(run + "/last.safetensors")) return run;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {};
}

// Waits until no process holds the lock of the folder.
bool is_left(const std::string& folder) {
  for (int i = 0; i < 60'000; ++i) {
    if (file_system().lock_directory(folder) != nullptr) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace

TEST_CASE("A sweep passes a signal on to its run, and leaves none behind when it is killed") {
  const TempDir temp;
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGKILL}) {
    const std::string out = temp.file(concat("sweep", signal));
    Process sweep(sweep_of(out, "100000 epochs"));  // longer than any test waits
    const std::string run = first_run(out);
    REQUIRE_FALSE(run.empty());
    sweep.signal(signal);
    const ProcessResult r = sweep.wait();
    INFO(signal << ": " << r.code << '\n' << r.out << r.err);
    CHECK(r.code == (signal == SIGKILL ? 137 : signal == SIGINT ? 130 : 75));
    CHECK(is_left(run));
    if (signal != SIGKILL) CHECK(json_file(run + "/summary.json").at("status") == "interrupted");
  }
}

TEST_CASE("A second sweep in one folder ends at once, and one that was killed early begins again in the same folder") {
  const TempDir temp;
  const std::string out = temp.file("sweep");
  std::string run;
  {
    Process sweep(sweep_of(out, "100000 epochs"));
    run = first_run(out);
    REQUIRE_FALSE(run.empty());
    const ProcessResult second = run_program(sweep_of(out, "100000 epochs"));
    CHECK(second.code == 2);
    CHECK(contains(second.err, "another sweep works in '" + out + "'"));
  }
  // What a kill before the first checkpoint leaves.
  const std::string shell = temp.file("again") + run.substr(run.rfind('/'));
  file_system().make_directories(shell);
  for (const char* name : {"config.yaml", "train.log"}) write_file_atomically(shell + '/' + name, "");
  const ProcessResult r = run_program(sweep_of(temp.file("again"), "20 steps"));
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(json_file(shell + "/summary.json").at("status") == "finished");
  CHECK_FALSE(file_system().exists(shell + ".2"));
}

TEST_CASE("watch leaves damaged lines out with their numbers, and reads regular files alone") {
  const TempDir temp;
  const std::string run = temp.file("run"), metrics = run + "/metrics.jsonl";
  REQUIRE(cli(small_train(run, {"-q"})).code == 0);
  const std::string good = slurp(metrics);
  const auto lines = std::count(good.begin(), good.end(), '\n');
  const std::vector<std::string> bad{"{\"event\":\"train\",\"step\":",
                                     "{\"event\":\"train\"}",
                                     "\xff\xfe",
                                     "{\"event\":[1],\"step\":2}",
                                     "{\"event\":\"eval\",\"step\":1e300}",
                                     "[]",
                                     std::string(200, '[')};
  for (const std::string& line : bad) {
    write_file_atomically(metrics, concat(good, line, '\n', good));
    const ProcessResult r = cli({"watch", run});
    INFO(line << '\n' << r.out << r.err);
    CHECK(r.code == 0);
    CHECK(contains(r.err, concat("metrics.jsonl:", lines + 1, ": not a line of a run, skipped")));
    CHECK(contains(r.err, "finished"));
  }
  std::filesystem::remove(metrics);
  REQUIRE(::mkfifo(metrics.c_str(), 0600) == 0);
  const ProcessResult pipe = cli({"watch", run});
  CHECK(pipe.code == 3);
  CHECK(contains(pipe.err, "it is a pipe, expected a regular file"));
}

TEST_CASE("A log that is a link to another file is not followed") {
  const TempDir temp;
  const std::string run = temp.file("run"), victim = temp.file("victim");
  REQUIRE(cli(small_train(run, {"-q", "train.stop=10 steps"})).code == 0);
  write_file_atomically(victim, "precious");
  std::filesystem::remove(run + "/train.log");
  std::filesystem::create_symlink(victim, run + "/train.log");
  const ProcessResult r = cli({"train", "--resume", run, "-q", "train.stop=20 steps"});
  INFO(r.err);
  CHECK(r.code == 3);
  CHECK(contains(r.err, "it is a link to another file"));
  CHECK(slurp(victim) == "precious");
}
