// bench_ranks with threads as ranks; below mpirun: tests/ranks/bench_test.cpp.
#include <fstream>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

ProcessResult bench_ranks(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), build_path("bin/bench_ranks"));
  return run_program(arguments);
}

Json row_of(std::vector<std::string> arguments) {
  TempDir temp;
  const std::string file = temp.file("r.json");
  arguments.insert(arguments.end(), {"--size", "128", "--repeat", "2", "--json", file});
  const ProcessResult r = bench_ranks(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "forward backward s"));
  const Json rows = Json::parse(slurp(file)).at("rows");
  REQUIRE(rows.size() == 1);
  return rows[0];
}

}  // namespace

TEST_CASE("bench_ranks reports the step, its forward and backward, the rest, and no more bytes than an all-reduce") {
  for (const char* weight : {"int4", "bint1", "int8", "fp32"}) {
    const Json row = row_of({"--weight", weight});
    INFO(row.dump());
    CHECK(row.at("weight") == weight);
    CHECK(row.at("ranks") == 2);
    CHECK(row.at("engine") == "threads");
    for (const char* time : {"step_s", "forward_backward_s"}) CHECK(row.at(time) > 0);
    CHECK(row.at("bytes_a_weight") > 0.5);
    CHECK(row.at("x_all_reduce") > 0.95);
    CHECK_FALSE(row.contains("interface_bytes_a_weight"));
  }
  const Json four = row_of({"--ranks", "4", "--microbatches", "8", "--grad", "bf16", "--interface", "lo"});
  INFO(four.dump());
  CHECK(four.at("grad") == "bf16");
  CHECK(four.at("x_all_reduce") > 1.7);  // half of an all-reduce in fp32, and lists
  CHECK(four.at("interface_bytes_a_weight") >= 0);
  const Json one = row_of({"--ranks", "1"});
  CHECK(one.at("bytes_a_weight") == 0);
  CHECK(one.at("x_all_reduce").is_null());
}

TEST_CASE("bench_ranks compares the bytes with an older report") {
  TempDir temp;
  const std::string file = temp.file("old.json");
  const std::vector<std::string> small{"--size", "64", "--repeat", "1"};
  const auto run = [&](const std::string& option) {
    std::vector<std::string> arguments = small;
    arguments.insert(arguments.end(), {option, file});
    return bench_ranks(arguments);
  };
  REQUIRE(run("--json").code == 0);
  CHECK(run("--compare").code == 0);
  Json better = Json::parse(slurp(file));
  better.at("rows")[0]["x_all_reduce"] = 100.0;
  std::ofstream(file) << better.dump();
  const ProcessResult lost = run("--compare");
  CHECK(lost.code == 1);
  CHECK(contains(lost.out, "LOST"));
}

TEST_CASE("what bench_ranks cannot do ends with 2, on all ranks") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& text) {
    const ProcessResult r = bench_ranks(arguments);
    INFO(r.out << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, text));
  };
  refused({"--microbatches", "6", "--ranks", "4"}, "got 6, expected a multiple of 4 ranks, two for each at least");
  refused({"--ranks", "4"}, "--microbatches: got 4, expected a multiple of 4 ranks, two for each at least");
  refused({"--size", "64", "--interface", "none"}, "--interface: cannot read /sys/class/net/none/statistics/tx_bytes");
  refused({"--weight", "int3"}, "--weight");
  refused({"--json", "/no/such/folder/x.json"}, "--json: cannot write '/no/such/folder/x.json'");
}
