// Allocations that fail, one at a time or all from one on, over a whole training.
#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/failing_calls.h"

using namespace bitgrad::test;

namespace {

Process::Environment shim(const std::string& name, long value, long length = 1) {
  return with_failing_calls({{name, std::to_string(value)}, {"FAULT_MALLOC_FOR", std::to_string(length)}});
}

CallCounts counts_of(const std::vector<std::string>& arguments, const std::string& file) {
  REQUIRE(cli(arguments, with_failing_calls({{"FAULT_COUNT", file}})).code == 0);
  return counts_in(file);
}

// One run with a failing allocation: it ends well, and then all is as in the uninterrupted run, or with 4 and a text,
// and then what it left is whole.
void check_run(const std::string& folder, const std::string& uninterrupted, const ProcessResult& r) {
  const bool before_main = r.code == 1 && contains(r.err, "libgomp: Out of memory");  // which ends the process itself
  CHECK((r.code == 0 || r.code == 4 || before_main));
  CHECK_FALSE(contains(r.err, "bug"));
  if (r.code == 0) {
    CHECK(hash_in(folder) == hash_in(uninterrupted));
    CHECK(slurp(folder + "/config.yaml") == slurp(uninterrupted + "/config.yaml"));
    CHECK(slurp(folder + "/config.source.yaml") == slurp(uninterrupted + "/config.source.yaml"));
    CHECK(metrics_in(folder) == metrics_in(uninterrupted));
  } else {
    CHECK(contains(r.err, "memory"));
  }
  if (!exists(folder + "/last.safetensors")) return;
  const ProcessResult resumed = cli({"train", "--resume", folder});
  INFO("resumed: " << resumed.err);
  CHECK(resumed.code == 0);
  CHECK(hash_in(folder) == hash_in(uninterrupted));
}

}  // namespace

TEST_CASE("a failing allocation ends a training with 4 and a text, or leaves the run as it would have been") {
  constexpr long kRuns = 40;
  TempDir temp;
  const std::string uninterrupted = temp.file("uninterrupted");
  const auto arguments = [](const std::string& folder) {
    return small_train(folder, {"train.stop=1 epochs", "device.threads=2"});
  };
  const CallCounts counts = counts_of(arguments(uninterrupted), temp.file("counts"));
  const long all = counts.allocations, before_main = counts.before_main;
  const long inside = all - before_main;
  REQUIRE(inside > 1000);
  for (const long length : {1l, 1000000000l})
    for (long run = 0; run < kRuns; ++run) {
      // The first ones are those of the dynamic linker and of OpenMP.
      const long n = run < 4 ? 1 + run * 7 : before_main + inside * (2 * run + (length > 1)) / (2 * kRuns) + 1;
      const std::string folder = temp.file(std::to_string(n) + (length > 1 ? "on" : ""));
      const ProcessResult r = cli(arguments(folder), shim("FAULT_MALLOC", n, length));
      INFO("allocation " << n << " of " << all << (length > 1 ? " and all later ones" : "") << ": code " << r.code
                         << ": " << r.out << r.err);
      check_run(folder, uninterrupted, r);
    }
}

TEST_CASE("a failing allocation spoils no file that convert writes") {
  constexpr long kRuns = 20;
  TempDir temp;
  const std::string run = temp.file("run"), whole = temp.file("whole.safetensors");
  REQUIRE(cli(small_train(run)).code == 0);
  const CallCounts counts = counts_of({"convert", run, "-o", whole}, temp.file("counts"));
  const long all = counts.allocations, before_main = counts.before_main;
  for (long i = 0; i < kRuns; ++i) {
    const long n = before_main + (all - before_main) * (2 * i + 1) / (2 * kRuns) + 1;
    const std::string out = temp.file(std::to_string(n) + ".safetensors");
    const ProcessResult r = cli({"convert", run, "-o", out}, shim("FAULT_MALLOC", n));
    INFO("allocation " << n << " of " << all << ": code " << r.code << ": " << r.err);
    CHECK((r.code == 0 || r.code == 4));
    if (r.code == 0) CHECK(exists(out));
    if (exists(out)) CHECK(slurp(out) == slurp(whole));
  }
}
