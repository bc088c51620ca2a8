// The program when files of a run folder are not what the run wrote: it goes on as it was, or says what is changed.
#include <cctype>
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/wild_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::vector<std::string> kKeys{"train.stop=6 steps", "checkpoint.every=1 steps", "log.every=1 steps"};

// A run that was stopped after 3 of 6 steps, and the state at the end of one that was not.
struct Stopped {
  Stopped() {
    const KeepModes keep;
    const RunConfig config = small_config(kKeys, kWildNet);
    uninterrupted = run_all(config).state_hash;
    run_part(config, create_run_folder(config, folder), 3);
    this->config = slurp(folder + "/config.yaml");
    metrics = slurp(folder + "/metrics.jsonl");
  }
  // The folder as it was, resumed after a change; a copy.
  ProcessResult resumed(const std::string& name, const std::string& text, const std::vector<std::string>& more = {}) {
    std::filesystem::remove_all(copy);
    std::filesystem::copy(folder, copy);
    std::ofstream(copy + '/' + name, std::ios::binary) << text;
    std::vector<std::string> words{"train", "--resume", copy};
    words.insert(words.end(), more.begin(), more.end());
    return cli(words);
  }
  std::string hash() const { return Json::parse(slurp(copy + "/summary.json")).at("state_hash").text(); }
  TempDir temp;
  const std::string folder = temp.file("run"), copy = temp.file("copy");
  std::string uninterrupted, config, metrics;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? "not there: " + from : text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("resume with a changed config.yaml lists the keys, and goes on with it only where that is asked for") {
  Stopped run;
  const std::string changed = replaced(run.config, "lr: 0.1", "lr: 0.3");
  const ProcessResult refused = run.resumed("config.yaml", changed);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err,
                 "config.yaml is not the configuration that the run was saved with. optim.lr: got 0.3, "
                 "expected 0.1. Restore it, or pass --use-config to use it"));
  CHECK(slurp(run.copy + "/last.safetensors") == slurp(run.folder + "/last.safetensors"));
  const ProcessResult taken = run.resumed("config.yaml", changed, {"--use-config"});
  INFO(taken.err);
  CHECK(taken.code == 0);
  CHECK(contains(taken.err, "resumed with a configuration other than that of the saved run"));
  CHECK(run.hash() != run.uninterrupted);
  // Now it is the configuration of the checkpoint.
  CHECK(cli({"train", "--resume", run.copy}).code == 0);
  CHECK(run.resumed("config.yaml", run.config).code == 0);
  CHECK(run.hash() == run.uninterrupted);
  const ProcessResult alone = cli({"train", run.folder + "/config.yaml", "--use-config"});
  CHECK(alone.code == 2);
  CHECK(contains(alone.err, "--use-config needs --resume"));
}

TEST_CASE("no flipped bit of config.yaml trains on with another configuration") {
  Stopped run;
  int64_t refused = 0, warned = 0, same = 0, digits = 0;
  for (size_t i = 0; i < run.config.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(run.config[i])) != 0;
    if (!(digit && ++digits % 2 == 0) && i % 23 != 0) continue;
    std::string flipped = run.config;
    flipped[i] = static_cast<char>(flipped[i] ^ (digit ? 1 : 1 << (i % 8)));  // digits become digits
    const ProcessResult r = run.resumed("config.yaml", flipped);
    INFO("byte " << i << ": " << r.err);
    if (r.code == 2) {
      ++refused;
      CHECK(contains(r.err, "is not the configuration that the run was saved with"));
      continue;
    }
    REQUIRE(r.code == 0);
    CHECK(run.hash() == run.uninterrupted);
    (contains(r.err, "warning: ") ? warned : same) += 1;
  }
  INFO(refused << " refused, " << warned << " warned of, " << same << " the same");
  CHECK(refused > 4);
  CHECK(warned > 10);
}

TEST_CASE("no damage of metrics.jsonl passes without a word, and the run ends as it would have") {
  Stopped run;
  const std::string path = run.copy + "/metrics.jsonl";
  for (size_t i = 3; i < run.metrics.size(); i += 41) {
    std::string flipped = run.metrics;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    const ProcessResult r = run.resumed("metrics.jsonl", flipped);
    INFO("byte " << i << ": " << r.err);
    CHECK(r.code == 0);
    CHECK(run.hash() == run.uninterrupted);
    CHECK(contains(r.err, "warning: " + path + ": "));
    CHECK(slurp(path + ".damaged") == flipped);
  }
  const ProcessResult second = run.resumed("metrics.jsonl", replaced(run.metrics, "\n{", "\n["));
  CHECK(contains(second.err, path + ": line 2 cannot be read and was dropped"));
  // What a kill in the middle of a write leaves is no alarm.
  const ProcessResult cut = run.resumed("metrics.jsonl", run.metrics + "{\"event\":\"tra");
  CHECK(cut.code == 0);
  CHECK(!contains(cut.err, "warning"));
  CHECK(contains(slurp(run.copy + "/train.log"), "the last line is incomplete and is dropped"));
  CHECK(!std::filesystem::exists(path + ".damaged"));
  CHECK(run.hash() == run.uninterrupted);
}
