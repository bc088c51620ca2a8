// A folder from somebody else runs no code of its own, whichever command opens it.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kLibrary = build_path("bin/tests/libraries/leaves_a_mark.so");

// A finished run, the library beside it, and config.yaml that names it.
struct Download {
  TempDir temp;
  const std::string run = temp.file("run"), mark = temp.file("code_ran"), out = temp.file("out");
  Download() {
    const std::string config = temp.file("c.yaml");
    write_file_atomically(
        config,
        "version: 1\ndata: {train: {format: digits, size: 40}}\nmodel: {layers: [linear: {out: 10}]}\n"
        "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 2 steps}\n");
    const ProcessResult r = cli({"train", config, "-q", "--out", run});
    INFO(r.err);
    REQUIRE(r.code == 0);
    std::filesystem::copy_file(kLibrary, run + "/library.so");
    write_file_atomically(run + "/config.yaml", "plugins: [library.so]\n" + slurp(run + "/config.yaml"));
  }
  ProcessResult open(const std::vector<std::string>& words) const { return cli(words, {{"BITGRAD_TEST_MARK", mark}}); }
  bool ran() const { return file_system().exists(mark); }
};

// How each command opens a run; none: it opens no file of a model.
std::map<std::string, std::vector<std::vector<std::string>>> openings(const Download& d) {
  const std::string& run = d.run;
  return {{"train", {{"train", "--resume", run}, {"train", "--resume", run, "--use-config"}}},
          {"watch", {{"watch", run}}},
          {"eval", {{"eval", run}}},
          {"predict", {{"predict", run, "/nonexistent.npy"}}},
          {"generate", {{"generate", run, "--ids", "1"}}},
          {"inspect", {{"inspect", run}, {"inspect", run + "/last.safetensors"}}},
          {"report", {{"report", run, "-o", d.out}}},
          {"diff", {{"diff", run, run}}},
          {"convert", {{"convert", run, "-o", d.out}}},
          {"quantize", {{"quantize", run, "--recipe", "w8a8", "--dry-run"}}},
          {"adapters", {{"adapters", run, "-o", d.out}}},
          {"merge", {{"merge", run, "-o", d.out}}},
          {"export", {{"export", run, "-o", d.out + ".c", "--dry-run"}}},
          {"sensitivity", {{"sensitivity", run}}},
          // Named by the user, or no model.
          {"check", {}},
          {"sweep", {}},
          {"import", {{"import", run, "-o", d.out}}},
          {"data", {{"data", "info", run}}},
          {"tokenize", {}},
          {"tokenizer", {}},
          {"new", {}},
          {"keys", {}},
          {"explain", {}},
          {"schema", {}},
          {"presets", {}},
          {"models", {}},
          {"recipes", {}},
          {"kernels", {}},
          {"version", {}},
          {"help", {}},
          {"completion", {}},
          {"man", {}}};
}

}  // namespace

TEST_CASE("No command runs the library that a folder's config.yaml names, and each reports how to allow it") {
  const Download d;
  const auto all = openings(d);
#define BITGRAD_COMMAND(name, summary) CHECK(all.count(#name) == 1);
#include "../../apps/bitgrad/commands.inc"
#undef BITGRAD_COMMAND
  for (const auto& [command, calls] : all)
    for (const std::vector<std::string>& call : calls) {
      const ProcessResult r = d.open(call);
      INFO(command << ": " << r.code << '\n' << r.out << r.err);
      CHECK_FALSE(d.ran());
      if (command == "import" || command == "data" || command == "report") continue;
      CHECK(r.code == 2);
      CHECK(contains(r.err, "library.so: is not loaded, and a run or a model loads no library by itself"));
      CHECK(contains(r.err, "--plugin"));
    }
  // A program that opens it, and one that names the library.
  CHECK(contains(error_of([&] { open_file(d.run); }), "library.so: is not loaded"));
  d.open({"inspect", d.run, "--plugin", d.run + "/library.so"});
  CHECK(d.ran());
}

TEST_CASE("A configuration that the user names loads its plugins") {
  const Download d;
  d.open({"check", d.run + "/config.yaml"});
  CHECK(d.ran());
}
