// The states of shipped configurations after 50 steps in strict mode stay what they were.
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/data_folder.h"
#include "support/expect_error.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

// The folder of a configuration's files under data_folder(); empty: it reads none.
std::string files_of(const std::string& name) {
  return name.rfind("mnist", 0) == 0 ? "mnist" : name.rfind("shakespeare", 0) == 0 ? "text" : "";
}

std::string hash_after_50_steps(const std::string& name, const std::string& folder, const std::string& choice = {}) {
  std::vector<std::string> arguments{
      "train", source_path("configs/") + name + ".yaml", "run.bits=strict", "train.stop=50 steps", "--out", folder};
  if (!files_of(name).empty()) arguments.push_back("data.root=" + data_folder());
  if (name == "digits_linear_fp32" || files_of(name) == "text") arguments.push_back("schedule.warmup=10 steps");
  if (!choice.empty()) arguments.push_back(choice);
  const ProcessResult r = cli(arguments);
  INFO(name << ": " << r.out << r.err);
  REQUIRE(r.code == 0);
  return Json::parse(slurp(folder + "/summary.json")).at("state_hash").text();
}

// Trains the configurations that are wanted, and compares.
void check_states(const std::function<bool(const std::string&)>& wanted) {
  TempDir temp;
  const Json golden = Json::parse(slurp(source_path("tests/golden/strict_50_steps.json")));
  const Json& hashes = golden.at("hashes");
  const Json& chosen = golden.at("chosen");
  REQUIRE((hashes.size() == 23 && chosen.size() == 5));
  for (const auto& [name, hash] : hashes.members()) {
    if (!wanted(name)) continue;
    if (!files_of(name).empty() && !std::filesystem::exists(data_folder() + "/" + files_of(name))) {
      WARN(name << " skipped: no " << files_of(name) << " in " << data_folder() << " (set BITGRAD_DATA)");
      continue;
    }
    CHECK(hash_after_50_steps(name, temp.file(name)) == hash.text());
    if (!chosen.contains(name)) continue;
    const Json& before = chosen.at(name);
    CHECK(hash_after_50_steps(name, temp.file(name + "_chosen"), before.at("choice").text()) ==
          before.at("hash").text());
  }
}

// 35 million weights: 20 s of processor time for kernels that mnist_lfc_w1a1 runs too.
constexpr const char* kWide = "mnist_mlp4096_w1a1";

}  // namespace

TEST_CASE("every configuration that shipped before reaches the state that it reached, in strict", "[slow]") {
  check_states([](const std::string& name) { return name != kWide; });
}

TEST_CASE("the widest configuration that shipped before reaches the state that it reached, in strict",
          "[slow][.training]") {
  check_states([](const std::string& name) { return name == kWide; });
}
