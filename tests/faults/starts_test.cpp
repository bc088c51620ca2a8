// Many programs that start in one folder at the same moment.
#include <memory>

#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad::test;

TEST_CASE("of many starts in one new folder one trains, with its own configuration; the others report the reason") {
  constexpr int kStarts = 6, kRounds = 4;
  TempDir temp;
  for (int round = 0; round < kRounds; ++round) {
    const std::string folder = temp.file("round" + std::to_string(round));
    std::vector<std::unique_ptr<Process>> starts;
    for (int seed = 1; seed <= kStarts; ++seed)
      starts.push_back(std::make_unique<Process>(
          with_program(small_train(folder, {"run.seed=" + std::to_string(seed), "train.stop=1 epochs"}))));
    int winner = 0;
    for (int seed = 1; seed <= kStarts; ++seed) {
      const ProcessResult r = starts[static_cast<size_t>(seed - 1)]->wait();
      INFO("round " << round << ", seed " << seed << ", code " << r.code << ": " << r.err);
      if (r.code == 0) {
        CHECK(winner == 0);
        winner = seed;
        continue;
      }
      CHECK(r.code == 2);
      const bool during = contains(r.err, "[run folder] another process trains in '" + folder + "'");
      const bool after = contains(r.err, "[run folder] '" + folder + "' is not empty, and a run never overwrites one");
      CHECK((during || after));
      CHECK(count_of(r.err, "\n") == 1);
      CHECK(r.out.empty());
    }
    REQUIRE(winner != 0);
    CHECK(contains(slurp(folder + "/config.yaml"), "seed: " + std::to_string(winner) + ","));
    CHECK(json_file(folder + "/summary.json").at("status") == "finished");
    const ProcessResult resumed = cli({"train", "--resume", folder});  // with the configuration of its checkpoint
    INFO(resumed.err);
    CHECK(resumed.code == 0);
    CHECK(resumed.err.find("warning") == std::string::npos);
  }
}

TEST_CASE("many starts without a folder's name train each in a folder of its own") {
  TempDir temp;
  std::vector<std::unique_ptr<Process>> starts;
  for (int i = 0; i < 4; ++i) {
    std::vector<std::string> arguments =
        with_program(small_train("", {"run.dir=" + temp.path(), "train.stop=1 epochs"}));
    arguments.erase(std::find(arguments.begin(), arguments.end(), "--out"));
    arguments.erase(std::find(arguments.begin(), arguments.end(), ""));
    starts.push_back(std::make_unique<Process>(arguments));
  }
  for (const auto& start : starts) {
    const ProcessResult r = start->wait();
    INFO(r.err);
    CHECK(r.code == 0);
  }
  for (int i = 1; i <= 4; ++i)
    CHECK(json_file(temp.file("digits_mlp_w1a1/000" + std::to_string(i) + "/summary.json")).at("status") == "finished");
}
