// Presets as users of the program see them.
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/config/presets.h"
#include "support/catch.h"
#include "support/expect_error.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
std::string config_of(const std::string& model) {
  return "version: 1\ndata: {train: {format: digits, size: 200}, test: {format: digits, size: 50}, affine: [2, -1]}\n" +
         model + "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 5 steps}\n";
}

}  // namespace

TEST_CASE("presets lists the networks, prints the file of one, and a copy of it trains to the same state") {
  const ProcessResult list = cli({"presets"});
  CHECK(list.code == 0);
  for (const bitgrad::ModelPreset& preset : bitgrad::model_presets())
    CHECK(contains(list.out, "\n" + preset.name + "  "));
  CHECK(contains(cli({"presets", "--json"}).out, "classes: 10, width: 64, dropout: 0.2"));
  const ProcessResult one = cli({"presets", "finn_mlp"});
  CHECK(one.code == 0);
  CHECK(contains(one.out, "keys: {classes: 10, width: 64, dropout: 0.2}"));
  const ProcessResult none = cli({"presets", "mlp"});
  CHECK(none.code == 2);
  CHECK(contains(none.err, "no preset is called 'mlp'. Known: "));
  CHECK(contains(cli({"presets", "cnvv"}).err, "no preset is called 'cnvv'. Did you mean 'cnv'? Known: birealnet18, "));
  CHECK(cli({"data", "pack"}).err.ends_with("is required. Try: bitgrad data --help\n"));
  CHECK(cli({"--nonsense"}).err.ends_with("Try: bitgrad --help\n"));

  TempDir temp;
  write(temp.file("my_net.yaml"), one.out);
  write(temp.file("shipped.yaml"), config_of("model: {preset: finn_mlp}\n"));
  write(temp.file("copy.yaml"), config_of("model: {preset: ./my_net.yaml}\n"));
  for (const std::string name : {"shipped", "copy"}) {
    const ProcessResult r =
        cli({"train", temp.file(name + ".yaml"), "run.name=x", "run.bits=strict", "--out", temp.file(name)});
    INFO(r.err);
    REQUIRE(r.code == 0);
  }
  const auto hash = [&](const std::string& run) {
    return Json::parse(slurp(temp.file(run) + "/summary.json")).at("state_hash").text();
  };
  CHECK(hash("shipped") == hash("copy"));
  CHECK(slurp(temp.file("shipped/config.yaml")) == slurp(temp.file("copy/config.yaml")));
  // The run goes on without the file of the preset.
  std::filesystem::remove(temp.file("my_net.yaml"));
  const ProcessResult resumed = cli({"train", "--resume", temp.file("copy")});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
}
