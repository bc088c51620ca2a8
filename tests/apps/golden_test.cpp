// What earlier programs wrote stays true: the states of shipped configurations, and files of format 2.
#include <cstdlib>
#include <filesystem>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

const std::string kGolden = source_path("tests/golden/"), kFormat2 = kGolden + "format2/";

std::string data_folder() {
  const char* root = std::getenv("BITGRAD_DATA");
  return root != nullptr ? root : source_path("../shared/data");
}

// The folder of a configuration's files under data_folder(); empty: it reads none.
std::string files_of(const std::string& name) {
  return name.rfind("mnist", 0) == 0 ? "mnist" : name.rfind("shakespeare", 0) == 0 ? "text" : "";
}

std::string hash_after_50_steps(const std::string& name, const std::string& folder) {
  std::vector<std::string> arguments{"train",           source_path("configs/") + name + ".yaml",
                                     "run.bits=strict", "train.stop=50 steps",
                                     "--out",           folder};
  if (!files_of(name).empty()) arguments.push_back("data.root=" + data_folder());
  if (name == "digits_linear_fp32" || files_of(name) == "text") arguments.push_back("schedule.warmup=10 steps");
  const ProcessResult r = cli(arguments);
  INFO(name << ": " << r.out << r.err);
  REQUIRE(r.code == 0);
  return Json::parse(slurp(folder + "/summary.json")).at("state_hash").text();
}

// A run folder of format 2, copied to where it may be written.
std::string copied(const TempDir& temp, const std::string& name) {
  std::string folder = temp.file(name);
  std::filesystem::copy(kFormat2 + name, folder, std::filesystem::copy_options::recursive);
  return folder;
}

Json json_of(const std::vector<std::string>& arguments) {
  const ProcessResult r = cli(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return Json::parse(r.out);
}

}  // namespace

TEST_CASE("every configuration that shipped before reaches the state that it reached, in strict", "[slow]") {
  TempDir temp;
  const Json golden = Json::parse(slurp(kGolden + "strict_50_steps.json"));
  const Json& hashes = golden.at("hashes");
  REQUIRE(hashes.size() == 23);
  for (const auto& [name, hash] : hashes.members()) {
    if (!files_of(name).empty() && !std::filesystem::exists(data_folder() + "/" + files_of(name))) {
      WARN(name << " skipped: no " << files_of(name) << " in " << data_folder() << " (set BITGRAD_DATA)");
      continue;
    }
    CHECK(hash_after_50_steps(name, temp.file(name)) == hash.text());
  }
}

TEST_CASE("a run of format 2 that was stopped goes on, and ends in the state of the unbroken one") {
  TempDir temp;
  const std::string folder = copied(temp, "phases");
  const ProcessResult r = cli({"train", "--resume", folder});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json summary = Json::parse(slurp(folder + "/summary.json"));
  CHECK(summary.at("steps") == 600);
  CHECK(contains(slurp(folder + "/config.yaml"), "compute: int"));  // an old word of an old run: no note
  CHECK_FALSE(contains(slurp(folder + "/train.log"), "is now called"));
  CHECK(summary.at("state_hash") == "6d8c77b85cf8474af03dda480636ed854035c2154e93a0b44b1215f5d7236a42");
}

TEST_CASE("files of format 2 are evaluated, inspected and converted as by the program that wrote them") {
  TempDir temp;
  const std::string root = "data.root=" + kFormat2;
  for (const std::string& target : {kFormat2 + "phases", kFormat2 + "phases_converted.safetensors"}) {
    const Json e = json_of({"eval", target, "--json"});
    CHECK(e.at("accuracy").get<double>() == 81.0);
    CHECK(e.at("loss").get<double>() == 0.5863661575317383);
    CHECK(cli({"inspect", target}).code == 0);
  }
  for (const std::string& target : {kFormat2 + "text", kFormat2 + "text_converted.safetensors"}) {
    const Json e = json_of({"eval", target, root, "--json"});
    CHECK(e.at("accuracy").get<double>() == 15.068493150684931);
    CHECK(e.at("loss").get<double>() == 3.2836498626290935);
    CHECK(cli({"inspect", target}).code == 0);
  }
  for (const std::string name : {"phases", "text"}) {
    const std::string out = temp.file(name + ".safetensors");
    std::vector<std::string> check{"convert", kFormat2 + name, "-o", out, "--check"};
    if (name == "text") check.push_back(root);
    const ProcessResult r = cli(check);
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    // The same codes and scales: a converted file of today predicts what the old one does.
    std::vector<std::string> diff{"diff", out, kFormat2 + name + "_converted.safetensors"};
    if (name == "text") diff.push_back(root);
    CHECK(cli(diff).code == 0);
  }
}
