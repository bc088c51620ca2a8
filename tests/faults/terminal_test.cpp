// Files whose text would drive the terminal of the one who reads a message about them.
#include <algorithm>
#include <fstream>

#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad::test;

namespace {

void check_quiet(const ProcessResult& r) {
  for (const std::string& text : {r.out, r.err})
    CHECK(std::none_of(text.begin(), text.end(), [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return (byte < 0x20 && c != '\n') || byte == 0x7f || (byte >= 0x80 && byte < 0xa0);
    }));
}

}  // namespace

TEST_CASE("control bytes of a file of costs are shown, not obeyed") {
  TempDir temp;
  const std::string costs = temp.file("costs.txt");
  const auto kernels = [&] {
    return cli({"kernels", "--shape", "8,8,8", "--dtypes", "fp32,fp32"}, {{"BITGRAD_GEMM_COSTS", costs}});
  };
  std::ofstream(costs) << "\x1b]0;title\a\x1b[2Jbitgrad\n";
  const ProcessResult head = kernels();
  CHECK(head.code == 3);
  CHECK(contains(head.err, "got '\\x1b]0;title\\x07\\x1b[2Jbitgrad', expected"));
  check_quiet(head);
  std::ofstream(costs) << "bitgrad gemm costs 1\ncpu \x1b[31manother\x9b machine\n";
  const ProcessResult cpu = kernels();
  CHECK(cpu.code == 0);
  CHECK(contains(cpu.err, "'cpu \\x1b[31manother\\x9b machine'"));
  check_quiet(cpu);
}

TEST_CASE("control bytes of a configuration are shown, not obeyed") {
  TempDir temp;
  const std::string config = temp.file("run.yaml");
  const std::string good = slurp(source_path("configs/digits_mlp_w1a1.yaml"));
  const auto train = [&](const std::string& more) {
    std::ofstream(config) << good << more;
    return cli({"train", config, "--out", temp.file("run")});
  };
  for (const char* more : {"\"\\e[31mred\\x9b\": 1\n", "\"a\\rb\\0\": {c: 1}\n", "\x1b[31m: 1\n"}) {
    const ProcessResult r = train(more);
    INFO(r.err);
    CHECK(r.code == 2);
    CHECK_FALSE(exists(temp.file("run")));
    check_quiet(r);
  }
  CHECK(contains(train("\"\\e[31mred\": 1\n").err, "unknown key '\\x1b[31mred'"));
}

TEST_CASE("control bytes of a path are shown, not obeyed") {
  TempDir temp;
  const std::string path = temp.file("\x1b[31mred\n.safetensors");
  for (const auto& arguments : {std::vector<std::string>{"eval", path},
                                {"inspect", path},
                                {"train", path},
                                {"check", path},
                                {"data", "info", path}}) {
    const ProcessResult r = cli(arguments);
    INFO(r.err);
    CHECK((r.code == 2 || r.code == 3));
    CHECK(contains(r.err, "\\x1b[31mred\\n.safetensors"));  // on one line
    CHECK_FALSE(contains(r.err, "red\n"));
    check_quiet(r);
  }
  std::ofstream(path) << "wrong: 1\n";  // every finding names the file
  const ProcessResult wrong = cli({"check", path});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "\\x1b[31mred\\n.safetensors:1:1: error: unknown key 'wrong'"));
  CHECK_FALSE(contains(wrong.err, "red\n"));
  check_quiet(wrong);
  const std::string written = temp.file("\x1b[31mnew\n.yaml");  // what is printed of a file that was written
  const ProcessResult made = cli({"new", "digits", "-o", written});
  CHECK(made.code == 0);
  CHECK(contains(made.out, "\\x1b[31mnew\\n.yaml written"));
  CHECK_FALSE(contains(made.out, "new\n"));
  check_quiet(made);
  std::ofstream(path) << "not a checkpoint";
  const ProcessResult r = cli({"inspect", path});
  CHECK(r.code == 3);
  CHECK(contains(r.err, "\\x1b[31mred"));
  check_quiet(r);
}
