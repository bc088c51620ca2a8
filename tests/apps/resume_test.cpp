// bitgrad train --resume as people use it: longer, elsewhere, beside another process, after a signal in an evaluation.
#include <csignal>
#include <filesystem>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/failing_calls.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::string> small_train(const std::string& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"train",
                                     source_path("configs/digits_mlp_w1a1.yaml"),
                                     "--out",
                                     out,
                                     "data.train.size=200",
                                     "data.test.size=90",
                                     "batch.global=10",
                                     "batch.micro=10",
                                     "model.layers.1.linear.out=32",
                                     "model.layers.4.linear.out=32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}
Json json_file(const std::string& path) { return Json::parse(slurp(path)); }
std::string hash_in(const std::string& folder) { return json_file(folder + "/summary.json").at("state_hash").text(); }

}  // namespace

TEST_CASE("a finished run trains longer by train.stop, also under another name, and keeps the new length") {
  TempDir temp;
  const std::string folder = temp.file("run"), moved = temp.file("moved");
  const std::vector<std::string> constant{"schedule={name: constant}", "train.eval.every=2 steps"};
  std::vector<std::string> keys = constant;
  keys.push_back("train.stop=4 steps");
  REQUIRE(cli(small_train(folder, keys)).code == 0);
  keys.back() = "train.stop=8 steps";
  REQUIRE(cli(small_train(temp.file("uninterrupted"), keys)).code == 0);
  std::filesystem::rename(folder, moved);
  const ProcessResult longer = cli({"train", "--resume", moved, "train.stop=8 steps"});
  INFO(longer.out << longer.err);
  REQUIRE(longer.code == 0);
  CHECK(!contains(longer.err, "not bit for bit"));
  CHECK(hash_in(moved) == hash_in(temp.file("uninterrupted")));
  CHECK(contains(slurp(moved + "/config.yaml"), "stop: 8 steps"));
  const ProcessResult again = cli({"train", "--resume", moved});
  CHECK(again.code == 0);
  CHECK(again.err == "");
  CHECK(contains(again.out, "this run is finished: train.stop (8 steps) is reached"));
}

TEST_CASE("a run that trains and has not saved yet is not reported as ended before it saved") {
  TempDir temp;
  const std::string folder = temp.file("run");
  REQUIRE(cli(small_train(folder)).code == 0);
  std::filesystem::remove(folder + "/last.safetensors");
  const auto lock = file_system().lock_directory(folder);
  const ProcessResult live = cli({"train", "--resume", folder});
  CHECK(live.code == 2);
  CHECK(contains(live.err, "another process trains in '" + folder));
  CHECK(!contains(live.err, "Start it again"));
}

TEST_CASE(
    "a signal within an evaluation cuts it short, and the run resumes to the same state as an uninterrupted run") {
  TempDir temp;
  // Most of what this run allocates belongs to the evaluation of samples one by one.
  const auto train = [](const std::string& folder) {
    return small_train(folder, {"data.test.size=2000", "train.eval.batch=1", "train.eval.every=4 steps",
                                "train.stop=4 steps", "log.every=1 steps", "device.threads=2"});
  };
  const std::string counts = temp.file("counts");
  REQUIRE(cli(train(temp.file("uninterrupted")), with_failing_calls({{"FAULT_COUNT", counts}})).code == 0);
  const long within = counts_in(counts).allocations * 2 / 3;
  const ProcessResult r = cli(
      train(temp.file("run")),
      with_failing_calls({{"FAULT_KILL_MALLOC", std::to_string(within)}, {"FAULT_SIGNAL", std::to_string(SIGINT)}}));
  INFO(r.out << r.err);
  REQUIRE(r.code == 130);
  CHECK(contains(r.out, "stopped and saved at step 4"));
  CHECK(!contains(slurp(temp.file("run/metrics.jsonl")), "\"event\":\"eval\""));
  CHECK(contains(json_file(temp.file("run/summary.json")).at("ended").text(), "in an evaluation that a resumed run"));
  const ProcessResult rest = cli({"train", "--resume", temp.file("run"), "train.stop=4 steps"});
  INFO(rest.out << rest.err);
  REQUIRE(rest.code == 0);
  CHECK(hash_in(temp.file("run")) == hash_in(temp.file("uninterrupted")));
}
