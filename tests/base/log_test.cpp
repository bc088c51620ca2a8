#include "bitgrad/base/log.h"

#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

TEST_CASE("Log lines reach the sink, and without a sink they are dropped") {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    lines.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(line));
    if (line == "again") log(LogLevel::kDebug, "from the sink");
  });
  log(LogLevel::kWarning, "one");
  log(LogLevel::kInfo, "again");
  set_log_sink(nullptr);
  log(LogLevel::kError, "lost");
  CHECK(lines == std::vector<std::string>{"2 one", "1 again", "0 from the sink"});
}

TEST_CASE("Errors have a place, a text and the exit code") {
  CHECK(test::error_of([] { fail("op", "width: got ", 3, ", expected ", 4, '.'); }) ==
        "[op] width: got 3, expected 4.");
  CHECK(test::error_code_of([] { require(false, "op", "no"); }) == 2);
  CHECK(test::error_code_of([] { ensure(false, "op", "no"); }) == 70);
  CHECK(test::error_of([] { require(true, "op", "no"); }).empty());
}

}  // namespace
}  // namespace bitgrad
