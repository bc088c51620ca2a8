// docs/language.md: its commands run as they stand there, on a small text and for a few steps.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// The blocks of commands, in order.
std::vector<std::string> command_blocks() {
  std::istringstream lines(slurp(source_path("docs/language.md")));
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back() += line + '\n';
    }
  }
  return blocks;
}

// The block that begins with `command`, with a few steps in place of thousands.
std::string block_of(const std::string& command) {
  for (std::string block : command_blocks()) {
    if (!block.starts_with(command)) continue;
    std::istringstream lines(block);
    std::string out;
    for (std::string line; std::getline(lines, line);) {
      line = line.substr(0, line.find(" #"));
      if (line.starts_with("bitgrad train"))
        line +=
            " 'train.stop=6 steps' 'schedule.warmup=2 steps' 'train.eval.every=6 steps' data.train.context=16 "
            "data.test.context=16";
      out += line + '\n';
    }
    return out;
  }
  FAIL("docs/language.md has no block that begins with: " << command);
  return {};
}

}  // namespace

TEST_CASE("The commands of the guide to language models run as printed") {
  const TempDir temp;
  std::filesystem::create_directory_symlink(source_path("configs"), temp.file("configs"));
  std::filesystem::create_directories(temp.file("text"));
  for (const char* name : {"mine.txt", "a.txt", "b.txt", "text/tinyshakespeare.txt"}) {
    std::ofstream out(temp.file(name));
    for (int i = 0; i < 80; ++i) out << "The " << i << " arrows of outrageous fortune, ROMEO: a sea of troubles.\n";
  }
  const auto run = [&](const std::string& block) {
    const std::string script = "set -e; cd '" + temp.path() + "'; PATH='" + build_path("bin") + "':$PATH; TEXT='" +
                               temp.file("mine.txt") + "'\n" + block;
    const ProcessResult result = run_program({"/bin/bash", "-c", script}, {{"BITGRAD_DATA", temp.path()}});
    INFO(script << '\n' << result.out << '\n' << result.err);
    REQUIRE(result.code == 0);
    return result.out;
  };
  CHECK(contains(run(block_of("bitgrad tokenizer train")), "byte_bpe of 377 ids, 1 special tokens"));
  const std::string three = run(block_of("bitgrad train configs/shakespeare_gpt_cpu_int4.yaml data.train.file"));
  CHECK(contains(three, "\"loss\":"));
  CHECK(contains(three, "\nThe "));
  CHECK(contains(run(block_of("bitgrad generate runs/mine --prompt \"ROMEO:\"")), "ROMEO:"));
  run("bitgrad train configs/shakespeare_gpt_cpu.yaml --out runs/float 'train.stop=2 steps' 'schedule.warmup=1 steps' "
      "'train.eval.every=2 steps' data.train.context=16 data.test.context=16\n");
  run(block_of("bitgrad train configs/shakespeare_gpt_cpu_int4.yaml model.init_from"));
  run(block_of("bitgrad train configs/shakespeare_gpt_qlora.yaml"));
  CHECK(std::filesystem::exists(temp.file("merged.safetensors")));
}
