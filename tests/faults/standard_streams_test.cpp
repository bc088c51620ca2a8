// Standard streams that are closed, that nobody reads, or whose disk is full.
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "bitgrad/base/json.h"
#include "faults/small_train.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad::test;

namespace {

bitgrad::Json evaluated(const std::string& file) {
  const ProcessResult r = cli({"eval", file, "--json"});
  REQUIRE(r.code == 0);
  bitgrad::Json j = bitgrad::Json::parse(r.out);
  j.erase("file");
  return j;
}

// A run folder that is what the uninterrupted one is.
void check_whole(const std::string& folder, const std::string& uninterrupted) {
  CHECK(json_file(folder + "/summary.json").at("status") == "finished");
  CHECK(hash_in(folder) == hash_in(uninterrupted));
  CHECK(slurp(folder + "/config.yaml") == slurp(uninterrupted + "/config.yaml"));
  CHECK(slurp(folder + "/config.source.yaml") == slurp(uninterrupted + "/config.source.yaml"));
  CHECK(metrics_in(folder) == metrics_in(uninterrupted));
  for (const char* name : {"/last.safetensors", "/best.safetensors"})
    CHECK(evaluated(folder + name).dump() == evaluated(uninterrupted + name).dump());
}

bool has_full_device() {
  const bool has = ::access("/dev/full", W_OK) == 0;
  if (!has) WARN("skipped: there is no /dev/full");
  return has;
}

constexpr const char* kOut = "standard output cannot be written";
constexpr const char* kErr = "standard error cannot be written";

}  // namespace

TEST_CASE("a log that cannot be written is one warning, and the run goes on") {
  if (!has_full_device()) return;
  TempDir temp;
  const std::string uninterrupted = temp.file("uninterrupted"), folder = temp.file("run");
  REQUIRE(cli(small_train(uninterrupted)).code == 0);
  REQUIRE(cli(small_train(folder, {"train.stop=1 epochs"})).code == 0);
  std::filesystem::remove(folder + "/train.log");
  std::filesystem::create_symlink("/dev/full", folder + "/train.log");
  const ProcessResult r = cli({"train", "--resume", folder, "train.stop=2 epochs"});
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK(count_of(r.err, "warning: lines of train.log are lost: ") == 1);
  CHECK_FALSE(contains(r.err, "LOG ERROR"));
  CHECK(hash_in(folder) == hash_in(uninterrupted));
}

TEST_CASE("a training whose reader goes away runs to its end and reports it once in its log") {
  TempDir temp;
  const std::string uninterrupted = temp.file("uninterrupted");
  REQUIRE(cli(small_train(uninterrupted)).code == 0);
  CHECK_FALSE(contains(slurp(uninterrupted + "/train.log"), "cannot be written"));
  int number = 0;
  for (const std::vector<int>& unread : {std::vector<int>{1}, {2}, {1, 2}}) {
    const std::string folder = temp.file(std::to_string(number++));
    const ProcessResult r = cli(small_train(folder), {}, {.unread = unread});
    INFO(unread.front() << " of " << unread.size() << ": " << r.out << r.err);
    CHECK(r.code == 0);
    check_whole(folder, uninterrupted);
    const std::string log = slurp(folder + "/train.log");
    CHECK(count_of(log, kOut) == (unread.front() == 1 ? 1u : 0u));
    CHECK(count_of(log, kErr) == (unread.back() == 2 ? 1u : 0u));
    CHECK(count_of(log, "the reader has exited") == unread.size());
  }
}

TEST_CASE("a training whose output does not fit on the disk runs to its end and reports it once in its log") {
  if (!has_full_device()) return;
  TempDir temp;
  const std::string uninterrupted = temp.file("uninterrupted"), folder = temp.file("run");
  REQUIRE(cli(small_train(uninterrupted)).code == 0);
  const ProcessResult r = cli(small_train(folder), {}, {.files = {{1, "/dev/full"}, {2, "/dev/full"}}});
  CHECK(r.code == 0);
  check_whole(folder, uninterrupted);
  const std::string log = slurp(folder + "/train.log");
  CHECK(count_of(log, kOut) == 1);
  CHECK(count_of(log, kErr) == 1);
  CHECK(count_of(log, "a full disk?") == 2);
}

TEST_CASE("a command whose reader goes away ends quietly, as other programs do") {
  TempDir temp;
  const std::string folder = temp.file("run");
  REQUIRE(cli(small_train(folder)).code == 0);
  for (const auto& arguments : {std::vector<std::string>{"inspect", folder},
                                {"inspect", folder, "--json"},
                                {"eval", folder},
                                {"diff", folder, folder + "/best.safetensors"},
                                {"kernels", "--all"},
                                {"version"},
                                {"--help"}}) {
    const ProcessResult r = cli(arguments, {}, {.unread = {1}});
    INFO(arguments.front());
    CHECK(r.code == 128 + SIGPIPE);
    CHECK(r.err.empty());
    const ProcessResult blind = cli(arguments, {}, {.unread = {2}});  // which it does not use
    CHECK(blind.code == 0);
    CHECK_FALSE(blind.out.empty());
    if (::access("/dev/full", W_OK) != 0) continue;
    const ProcessResult full = cli(arguments, {}, {.files = {{1, "/dev/full"}}});
    CHECK(full.code == 4);
    CHECK(full.err == "error: [output] standard output cannot be written (a full disk?)\n");
  }
}

TEST_CASE("a command that writes a file writes it whole, read or not") {
  TempDir temp;
  const std::string folder = temp.file("run");
  REQUIRE(cli(small_train(folder)).code == 0);
  REQUIRE(cli({"convert", folder, "-o", temp.file("a.safetensors")}).code == 0);
  CHECK(cli({"convert", folder, "-o", temp.file("b.safetensors")}, {}, {.unread = {1, 2}}).code == 128 + SIGPIPE);
  CHECK(slurp(temp.file("a.safetensors")) == slurp(temp.file("b.safetensors")));
}

TEST_CASE("a program that is started without standard streams writes nothing of its own into its files") {
  TempDir temp;
  const std::string uninterrupted = temp.file("uninterrupted");
  REQUIRE(cli(small_train(uninterrupted)).code == 0);
  for (int mask = 1; mask < 8; ++mask) {
    std::vector<int> closed;
    for (int fd = 0; fd < 3; ++fd)
      if ((mask >> fd & 1) != 0) closed.push_back(fd);
    const std::string folder = temp.file(std::to_string(mask));
    const ProcessResult r = cli(small_train(folder), {}, {.closed = closed});
    INFO("closed: " << mask << ": " << r.err);
    CHECK(r.code == 0);
    check_whole(folder, uninterrupted);
    CHECK_FALSE(contains(slurp(folder + "/train.log"), "cannot be written"));
    CHECK(cli({"eval", folder}, {}, {.closed = closed}).code == 0);
    CHECK(cli({"convert", folder, "-o", folder + ".safetensors"}, {}, {.closed = closed}).code == 0);
    CHECK(cli({"eval", folder + ".safetensors"}).code == 0);
  }
  const std::string report = temp.file("report.json");
  const ProcessResult bench = run_program({build_path("bin/bench_kernels"), "--shape", "8,64", "--dtypes", "int8",
                                           "--family", "pack", "--copy-mib", "1", "--repeat", "1", "--json", report},
                                          {}, "", {.closed = {0, 1, 2}});
  CHECK(bench.code == 0);
  CHECK_NOTHROW(bitgrad::Json::parse(slurp(report)));
}

// Several ranks write to one standard error. A socket of datagrams shows what one call of write() wrote.
TEST_CASE("an error is written to standard error at once") {
  const TempDir temp;
  std::ofstream(temp.file("wrong.yaml")) << "modell: 1\n";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"trian"},
                                             {"inspect", "/missing"},
                                             {"train", temp.file("missing.yaml")},
                                             {"train", temp.file("wrong.yaml")}}) {
    INFO(arguments.front() << ' ' << arguments.back());
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    REQUIRE(ends[1] < 10);  // sh reads one digit
    std::vector<std::string> words{"/bin/sh", "-c", "exec \"$@\" 2>&" + std::to_string(ends[1]), "sh", kProgram};
    words.insert(words.end(), arguments.begin(), arguments.end());
    CHECK(run_program(words).code != 0);
    std::string text(1 << 16, '\0');
    const ssize_t bytes = ::recv(ends[0], text.data(), text.size(), MSG_DONTWAIT);
    REQUIRE(bytes > 0);
    text.resize(static_cast<size_t>(bytes));
    INFO(text);
    CHECK(contains(text, "error: "));
    CHECK(text.back() == '\n');
    CHECK(::recv(ends[0], text.data(), text.size(), MSG_DONTWAIT) < 0);  // nothing else
    for (const int end : ends) ::close(end);
  }
}
