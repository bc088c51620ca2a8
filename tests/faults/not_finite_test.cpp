// The program when numbers overflow: exit code 5 with a text, never 0 with a checkpoint that evaluates to NaN.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/wild_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

ProcessResult train(const std::string& config, const std::string& folder, const std::vector<std::string>& keys) {
  std::vector<std::string> words{"train", config, "-q", "--out", folder};
  words.insert(words.end(), keys.begin(), keys.end());
  return cli(words);
}

// The file with `change` done to the numbers of one tensor, and right checksums.
void forge(const std::string& from, const std::string& to, const std::string& tensor, float number) {
  const SafetensorsFile whole = SafetensorsFile::read(from);
  const std::vector<float> other(static_cast<size_t>(whole.entry(tensor).bytes / 4), number);
  std::vector<SafetensorsItem> items;
  for (const SafetensorsEntry& e : whole.entries())
    items.push_back({e.name, e.dtype, e.shape,
                     e.name == tensor ? static_cast<const void*>(other.data()) : whole.data(e.name), e.bytes});
  std::map<std::string, std::string> metadata = whole.metadata();
  std::erase_if(metadata, [](const auto& entry) { return contains(entry.first, "crc32c"); });
  write_safetensors(to, items, metadata);
}

}  // namespace

TEST_CASE("train ends with 5 where numbers overflow, and what it leaves evaluates to a finite loss") {
  const TempDir temp;
  const std::string config = temp.file("wild.yaml");
  std::ofstream(config) << kWildNet;
  int64_t runs = 0, refused = 0;
  for (const WildRun& run : wild_runs()) {
    const std::string folder = temp.file(std::to_string(runs++));
    const ProcessResult r = train(config, folder, run.keys);
    INFO(run.name << ": " << r.err);
    CHECK((r.code == 5 || (r.code == 0 && !run.overflows)));
    if (r.code == 5) {
      ++refused;
      CHECK(contains(r.err, "optimizer step"));
      CHECK(Json::parse(slurp(folder + "/summary.json")).at("status") == "failed");
    }
    for (const char* name : {"/last.safetensors", "/best.safetensors"}) {
      if (!std::filesystem::exists(folder + name)) continue;
      const ProcessResult e = cli({"eval", folder + name, "--json"});
      INFO(name << ": " << e.err);
      REQUIRE(e.code == 0);
      CHECK(Json::parse(e.out).at("loss").is_number());
    }
  }
  CHECK(refused >= 20);
}

TEST_CASE("eval and resume end with 5 and an error where a file holds NaN, or its model has no finite loss") {
  const TempDir temp;
  const std::string config = temp.file("wild.yaml"), folder = temp.file("run"), last = folder + "/last.safetensors";
  std::ofstream(config) << kWildNet;
  REQUIRE(train(config, folder, {"loss=squared_hinge"}).code == 0);
  const std::string full = slurp(last);
  const auto check = [&](const std::vector<std::string>& words, const std::string& text) {
    const ProcessResult r = cli(words);
    INFO(r.out << r.err);
    CHECK(r.code == 5);
    CHECK(contains(r.err, text));
    CHECK(r.out.empty());
  };
  forge(last, temp.file("nan"), "layers.1.running_var", std::numeric_limits<float>::quiet_NaN());
  check({"eval", temp.file("nan")}, temp.file("nan") + ": 'layers.1.running_var' holds NaN or Inf");
  std::filesystem::copy_file(temp.file("nan"), last, std::filesystem::copy_options::overwrite_existing);
  check({"train", "--resume", folder, "-q"}, "'layers.1.running_var' holds NaN or Inf");
  std::ofstream(last, std::ios::binary) << full;
  forge(last, temp.file("large"), "layers.3.bias.master", 1e30f);
  check({"eval", temp.file("large"), "--json"},
        "the loss is inf in an evaluation at optimizer step 8. Parameters, moments and running statistics are all "
        "finite");
}
