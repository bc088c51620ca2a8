// Runs below mpirun in which a rank comes to its end: the others end in time, with one text and one code.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bitgrad/base/text.h"
#include "ranks/launch_line.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::test;

namespace {

struct Run {
  ProcessResult result;
  std::vector<std::string> errors = {};  // code and text that each rank ended with
};

Run run_ranks(const std::string& scenario, int ranks, const std::string& binding = "none") {
  const TempDir temp;
  std::vector<std::string> line = mpirun(ranks, binding);
  line.insert(line.end(), {build_path("bin/tests/rank_program"), scenario, temp.path()});
  Run run{run_program(line)};
  for (int r = 0; r < ranks; ++r) run.errors.push_back(slurp(temp.file(std::to_string(r))));
  return run;
}

int lines_with(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Of ranks 0 and 2, those that mpirun leaves the time: that of MPICH kills them at once.
bool say_that_it_is_gone(const Run& run) {
  const auto says = [&](size_t r) { return run.errors[r].starts_with("6 [ranks] rank 1 is gone"); };
  return (says(0) || run.errors[0].empty()) && (says(2) || run.errors[2].empty()) && (says(0) || says(2) || !kOpenMpi);
}

}  // namespace

TEST_CASE("ranks that all end well return 0 and say who they are") {
  const Run run = run_ranks("", 4);
  INFO(run.result.out << run.result.err);
  CHECK(run.result.code == 0);
  CHECK(lines_with(run.result.out, "ended well") == 4);
  CHECK(lines_with(run.result.err, "log: ranks: mpi (") == 4);
  CHECK(contains(run.result.err, bitgrad::concat("rank 3 of 4 by ", kRankVariable, ", local rank 3 of 4 on ")));
}

TEST_CASE("after an Error of a rank all end with its code and text") {
  const Run run = run_ranks("error", 3);
  INFO(run.result.out << run.result.err);
  CHECK(run.result.code == 3);
  for (const size_t r : {0, 2}) CHECK(run.errors[r] == "3 [ranks] rank 1 ended: [data] no samples left");
  CHECK(run.errors[1] == "3 [data] no samples left");
}

// Slow: mpirun ends the others itself, a second after it has asked them to; on a busy machine they may not be heard.
TEST_CASE("a rank that is killed ends the others", "[slow]") {
  const Run run = run_ranks("kill", 3);
  INFO(run.result.out << run.result.err);
  CHECK(run.result.code == (kOpenMpi ? 137 : 9));
  CHECK(say_that_it_is_gone(run));
}

TEST_CASE("a rank that stops ends the others after the time limit") {
  const Run run = run_ranks("stop", 3);
  INFO(run.result.out << run.result.err);
  CHECK(run.result.code == 6);
  for (const size_t r : {0, 2}) CHECK(run.errors[r] == "6 [ranks] no answer from rank 1 in 2 s, in gather 7");
}

TEST_CASE("a rank that exits without a word ends the others", "[slow]") {
  for (const auto& [scenario, code] : {std::pair{"leave", 1}, std::pair{"abort", 9}}) {
    const Run run = run_ranks(scenario, 3);
    INFO(scenario << ' ' << run.result.code << '\n' << run.result.out << run.result.err);
    if (kOpenMpi || code != 1)
      CHECK(run.result.code == code);  // that of MPICH returns 0 or 9 for a rank that returns 0
    CHECK(lines_with(run.result.out, "ended well") == 0);
    CHECK(say_that_it_is_gone(run));
  }
}

TEST_CASE("a signal to all ranks does not end one that waits for a busy one") {
  const Run run = run_ranks("busy", 2);
  INFO(run.result.out << run.result.err);
  CHECK(run.result.code == 0);
}

TEST_CASE("one rank is none, and a program that finds itself alone among several says so") {
  const Run one = run_ranks("", 1);
  CHECK(one.result.code == 0);
  CHECK(one.result.out == "no ranks\n");
  CHECK(!contains(one.result.err, "--bind-to none"));
  if (std::thread::hardware_concurrency() > 1) {
    const Run bound = run_ranks("", 1, "core");
    INFO(bound.result.err);
    CHECK(contains(bound.result.err, "log: ranks: this rank may use 1 of "));
  }
  const ProcessResult alone =
      run_program({build_path("bin/tests/rank_program")}, {{kRankVariable, "0"}, {kSizeVariable, "4"}});
  INFO(alone.err);
  CHECK(alone.code == 2);
  CHECK(contains(alone.err, bitgrad::concat("[ranks] ", kRankVariable, " says rank 0 of 4, but ", kMpiName, ' ')));
  CHECK(contains(alone.err, "finds 1 rank."));
}
