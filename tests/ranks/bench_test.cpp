// bench_ranks below mpirun.
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "ranks/launch_line.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

ProcessResult bench_ranks(const std::vector<std::string>& arguments) {
  std::vector<std::string> line = mpirun(2);
  line.push_back(build_path("bin/bench_ranks"));
  line.insert(line.end(), arguments.begin(), arguments.end());
  return run_program(line);
}

}  // namespace

TEST_CASE("bench_ranks is a rank below mpirun, and rank 0 reports") {
  TempDir temp;
  const std::string file = temp.file("r.json");
  const ProcessResult r = bench_ranks({"--size", "256", "--repeat", "2", "--interface", "lo", "--json", file});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(r.out.find("x all-reduce") != std::string::npos);
  CHECK(r.out.find("x all-reduce") == r.out.rfind("x all-reduce"));
  const Json rows = Json::parse(slurp(file)).at("rows");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].at("ranks") == 2);
  CHECK(contains(rows[0].at("engine").text(), "mpi ("));
  CHECK(rows[0].at("step_s") > 0);
  CHECK(rows[0].at("x_all_reduce") > 0.95);
  CHECK(rows[0].contains("interface_bytes_a_weight"));
}

TEST_CASE("what bench_ranks cannot do below mpirun ends all ranks") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& text) {
    const ProcessResult r = bench_ranks(arguments);
    INFO(r.out << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, text));
  };
  refused({"--ranks", "2"}, "--ranks: got 2 below mpi (");
  refused({"--microbatches", "3"}, "--microbatches: got 3, expected a multiple of 2 ranks");
  refused({"--size", "64", "--interface", "none"}, "--interface: cannot read /sys/class/net/none/statistics/tx_bytes");
}
