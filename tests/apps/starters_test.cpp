// The configurations of `bitgrad new`, each from the first command to an export: the commands that stand in its
// comments run as they stand there, on small data of the form that it names.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/cli.h"
#include "apps/pictures.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Bytes without a pattern, the same in every run.
Bytes noise(size_t size) {
  Bytes out(size);
  uint32_t state = 1;
  for (uint8_t& byte : out) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return out;
}

Bytes idx(const std::vector<uint32_t>& shape, const Bytes& elements) {
  Bytes out{0, 0, 8, static_cast<uint8_t>(shape.size())};
  for (const uint32_t size : shape) put_big(out, size);
  out.insert(out.end(), elements.begin(), elements.end());
  return out;
}

Bytes classes(size_t samples, int count) {
  Bytes out(samples);
  for (size_t i = 0; i < samples; ++i) out[i] = static_cast<uint8_t>(i % static_cast<size_t>(count));
  return out;
}

// The data that every starter needs.
void write_data(const test::PictureFiles& folder) {
  for (const char* part : {"train", "t10k"}) {
    const std::string name = std::string("mnist/") + part;
    folder.write(name + "-images-idx3-ubyte.gz", idx({120, 28, 28}, noise(size_t{120} * 28 * 28)));
    folder.write(name + "-labels-idx1-ubyte.gz", idx({120}, classes(120, 10)));
  }
  for (const char* part :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    Bytes records;
    for (int i = 0; i < 40; ++i) {
      records.push_back(static_cast<uint8_t>(i % 10));
      const Bytes pixels = noise(3072);
      records.insert(records.end(), pixels.begin(), pixels.end());
    }
    folder.write(std::string("cifar-10-batches-bin/") + part + ".bin", records);
  }
  for (const char* part : {"train", "test"})
    for (const char* name : {"cat", "dog", "owl"})
      for (int i = 0; i < 12; ++i)
        folder.write("pictures/" + std::string(part) + "/" + name + "/" + std::to_string(i) + ".png",
                     png(20 + i, 30, 2, noise(static_cast<size_t>(20 + i) * 90)));
  folder.write("digit.png", png(28, 28, 0, noise(784)));
  std::string table = "width,height,class\n", text;
  for (int i = 0; i < 200; ++i)
    table += std::to_string(i % 17) + ".5," + std::to_string(i % 13) + (i % 17 > i % 13 ? ",wide\n" : ",high\n");
  for (int i = 0; i < 300; ++i) text += "It was the best of times, it was the worst of times. ";
  folder.write("table.csv", {table.begin(), table.end()});
  folder.write("input.txt", {text.begin(), text.end()});
}

// The commands in the comments of a configuration, those that come before training and those after.
struct Commands {
  std::vector<std::string> before, after;
};
Commands commands_of(const std::string& starter) {
  std::istringstream lines(starter);
  Commands found;
  const std::string mark = "#   bitgrad ";
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(mark)) {
      std::string command = line.substr(4);
      const std::string self = "THIS_FILE";
      if (const size_t at = command.find(self); at != std::string::npos) command.replace(at, self.size(), "my.yaml");
      (contains(command, "runs/mine") ? found.after : found.before).push_back(command);
    }
  return found;
}

}  // namespace

TEST_CASE("every starter runs from the first command to the files that it names") {
  const test::PictureFiles folder;
  write_data(folder);
  const auto shell = [&](const std::string& command) {
    const std::string script =
        "set -e; cd '" + folder.path(".") + "'; PATH='" + build_path("bin") + "':$PATH\n" + command;
    const ProcessResult r = run_program({"/bin/bash", "-c", script}, {{"BITGRAD_DATA", ""}});
    INFO(command << '\n' << r.out << r.err);
    CHECK(r.code == 0);
    return r.out;
  };
  std::istringstream list(shell("bitgrad new --list"));
  std::string line;
  std::getline(list, line);
  int starters = 0;
  while (std::getline(list, line) && !line.empty()) {
    const std::string task = line.substr(0, line.find(' '));
    if (task.empty()) continue;  // goes on from the line above
    ++starters;
    shell("rm -rf runs/* model.* adapters; bitgrad new " + task + " -o my.yaml --force");
    const Commands commands = commands_of(slurp(folder.path("my.yaml")));
    // Short: the words that make the run small are not in the file.
    std::string shorter = " 'train.stop=3 steps'";
    if (task == "digits" || task == "finetune") shorter += " data.train.size=300 data.test.size=100";
    if (task == "text" || task == "cifar10") shorter += " 'schedule.warmup=1 steps'";
    if (task == "text") shorter += " 'train.eval.every=3 steps'";
    for (const std::string& command : commands.before)
      shell(command + (command.starts_with("bitgrad train") ? shorter + " -q" : ""));
    INFO(task);
    if (task == "pictures") shell("sed -i 's/out: 10}/out: 3}/' my.yaml");  // as many as there are folders
    CHECK(contains(shell("bitgrad check my.yaml" + shorter), "my.yaml: ok"));
    shell("bitgrad train my.yaml --out runs/mine -q" + shorter);
    CHECK(contains(shell("bitgrad eval runs/mine"), "loss"));
    CHECK(commands.after.size() >= 2);
    for (const std::string& command : commands.after) {
      shell(command);
      const size_t out = command.find(" -o ");
      if (out == std::string::npos) continue;
      const std::string file = command.substr(out + 4, command.find(' ', out + 4) - out - 4);
      CHECK(std::filesystem::exists(folder.path(file)));
    }
  }
  CHECK(starters >= 7);
}
