// A system that gives fewer threads, or less memory, than were asked for.
#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad::test;

#if !BITGRAD_SANITIZED

TEST_CASE("where a thread cannot be made, a training goes on with fewer to the same state, and warns once") {
  TempDir temp;
  const std::string calm = temp.file("calm");
  REQUIRE(cli(small_train(calm, {"device.threads=1"})).code == 0);
  for (const int given : {0, 1, 2, 5}) {
    const std::string folder = temp.file(std::to_string(given));
    const ProcessResult r = cli(small_train(folder, {"device.threads=8"}),
                                {{"LD_PRELOAD", BITGRAD_FAILING_CALLS}, {"FAULT_THREADS", std::to_string(given)}});
    INFO(given << ": " << r.err);
    CHECK(r.code == 0);
    CHECK(hash_in(folder) == hash_in(calm));
    CHECK(count_of(r.err, "warning: the system provides no more than") == 1);
    CHECK(contains(r.err, "of 8 threads (a memory or process limit)"));
    CHECK(contains(r.err, "warning: no thread to prefetch batches"));
  }
}

TEST_CASE("many threads in little memory: a run ends well or says that there is no memory") {
  TempDir temp;
  int number = 0;
  for (const int megabytes : {120, 160, 200, 260, 400, 1000}) {
    const std::string folder = temp.file(std::to_string(number++));
    std::string command = "ulimit -v " + std::to_string(megabytes * 1024) + " && exec " + kProgram;
    for (const std::string& word : small_train(folder, {"device.threads=64"})) command += " '" + word + "'";
    const ProcessResult r = run_program({"sh", "-c", command});
    INFO(megabytes << " MiB: code " << r.code << ": " << r.err);
    CHECK((r.code == 0 || r.code == 4));
    if (r.code == 4) CHECK((contains(r.err, "memory") || contains(r.err, "Cannot allocate")));
    CHECK_FALSE(contains(r.err, "bug"));
  }
}

#endif
