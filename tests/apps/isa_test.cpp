// The program on CPUs with fewer instructions, as BITGRAD_ISA_WITHOUT makes them.
#include <map>
#include <set>
#include <sstream>

#include "apps/cli.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad::test;

namespace {

// The groups of instructions that `bitgrad version` lists.
std::set<std::string> groups_without(const std::string& absent) {
  const ProcessResult r = cli({"version"}, {{"BITGRAD_ISA_WITHOUT", absent}, {"BITGRAD_ISA", "amx"}});
  INFO(absent << ": " << r.err);
  REQUIRE(r.code == 0);
  std::istringstream lines(r.out);
  std::set<std::string> groups;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != "isa") continue;
    while (words >> word) groups.insert(word);
  }
  REQUIRE_FALSE(groups.empty());
  return groups;
}

}  // namespace

TEST_CASE("disabling a group of instructions disables those above it and no others") {
  const std::set<std::string> all = groups_without("");
  const std::map<std::string, std::set<std::string>> gone{
      {"amx", {"amx"}},
      {"bf16", {"bf16"}},
      {"vnni,popcnt", {"vnni", "popcnt"}},
      {"vbmi", {"vbmi", "amx"}},
      {"bf16,avx512", {"avx512", "vnni", "popcnt", "bf16", "vbmi", "amx"}},
      {"avx2", {"avx2", "avx512", "vnni", "popcnt", "bf16", "vbmi", "amx"}}};
  for (const auto& [absent, groups] : gone) {
    std::set<std::string> expected;
    for (const std::string& group : all)
      if (groups.count(group) == 0) expected.insert(group);
    if (expected.empty()) expected.insert("scalar");
    INFO(absent);
    CHECK(groups_without(absent) == expected);
  }
}

TEST_CASE("an absent group that nobody knows is a usage error that lists the groups") {
  for (const std::string bad : {"avx", "mma.s8", "bf16,,amx", " bf16", "AMX"}) {
    const ProcessResult r = cli({"version"}, {{"BITGRAD_ISA_WITHOUT", bad}});
    INFO(bad << ": " << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, "[BITGRAD_ISA_WITHOUT] unknown group of instructions: got '"));
    CHECK(contains(r.err, "expected a list of avx2, avx512, vnni, popcnt, bf16, vbmi and amx"));
  }
}

TEST_CASE("without bf16 instructions oneDNN's emulation of them is not considered fast") {
  const ProcessResult r = cli({"kernels", "--shape", "16,4096,4096", "--dtypes", "bf16,bf16"},
                              {{"BITGRAD_ISA_WITHOUT", "bf16,amx"}, {"BITGRAD_GEMM_COSTS", "/nonexistent/costs.txt"}});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  std::istringstream lines(r.out);
  std::string chosen;
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "chosen")) chosen = line.substr(0, line.find(' '));
  CHECK(contains(chosen, "gemm_f32_chain512"));
}
