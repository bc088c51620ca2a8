// Files of a run with one bit flipped, or cut short: found by every command that reads them.
#include <fstream>
#include <random>

#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad::test;

TEST_CASE("a flipped bit or a cut is found by every command that reads the file, with exit code 3 and one line") {
  constexpr int kFlips = 12, kCuts = 4;
  TempDir temp;
  const std::string run = temp.file("run");
  REQUIRE(cli(small_train(run, {"train.stop=1 epochs"})).code == 0);
  REQUIRE(cli({"convert", run, "-o", temp.file("model.safetensors")}).code == 0);
  std::mt19937 random(5);
  for (const std::string& path :
       {run + "/last.safetensors", run + "/best.safetensors", temp.file("model.safetensors")}) {
    const std::string full = slurp(path);
    REQUIRE(full.size() > 1000);
    for (int i = 0; i < kFlips + kCuts; ++i) {
      std::string bytes = full;
      const size_t at = random() % (i < kFlips / 2 ? 1000 : full.size());  // half of them in the header
      if (i < kFlips)
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      else
        bytes.resize(at);
      std::ofstream(path, std::ios::binary) << bytes;
      const std::vector<std::vector<std::string>> readers{
          {"eval", path}, {"inspect", path}, {"convert", path, "-o", temp.file("out.safetensors")}};
      std::vector<std::string> reader = readers[static_cast<size_t>(i) % readers.size()];
      if (path.ends_with("last.safetensors") && i % 2 == 0) reader = {"train", "--resume", run};
      const ProcessResult r = cli(reader);
      INFO(path << ", " << (i < kFlips ? "flipped" : "cut") << " at byte " << at << ", " << reader[0] << ": " << r.err);
      CHECK(r.code == 3);
      CHECK(contains(r.err, path));
      CHECK(count_of(r.err, "\n") == 1);
      CHECK(r.out.empty());
      CHECK_FALSE(exists(temp.file("out.safetensors")));
    }
    std::ofstream(path, std::ios::binary) << full;
    CHECK(cli({"eval", path}).code == 0);
  }
}
