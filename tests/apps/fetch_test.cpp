// bitgrad data fetch against a server on the loopback: what it fetches, resumes, checks, unpacks and refuses.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "apps/http_server.h"
#include "bitgrad/base/json.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/io/sha256.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

using Texts = std::vector<std::string>;

std::string gzipped(const std::string& content) {
  const std::vector<uint8_t> out = gzip({content.begin(), content.end()});
  return {out.begin(), out.end()};
}
// `count` letters that do not compress into nothing.
std::string noise(size_t count) {
  std::string out;
  for (uint32_t x = 1; out.size() < count; x = x * 1664525 + 1013904223) out += static_cast<char>('a' + (x >> 24) % 26);
  return out;
}
Json entry(const std::string& path, const std::string& content) {
  return {{"path", path}, {"bytes", content.size()}, {"sha256", bitgrad::sha256_hex(content.data(), content.size())}};
}
Json set_of(const Texts& mirrors, const std::vector<Json>& files) { return {{"mirrors", mirrors}, {"files", files}}; }

// A folder to fetch into, and a list of what there is.
class FetchFolder {
 public:
  std::string path(const std::string& name) const { return temp_.file(name); }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }
  bool holds(const std::string& name) const { return std::filesystem::exists(path(name)); }
  std::string read(const std::string& name) const { return slurp(path(name)); }
  ProcessResult fetch(const Json& list, Texts names = {"set"}, const Texts& more = {}) const {
    write("mirrors.json", list.dump(2));
    names.insert(names.begin(), {"data", "fetch"});
    names.insert(names.end(), {"-o", path("data"), "--mirrors", path("mirrors.json")});
    names.insert(names.end(), more.begin(), more.end());
    return cli(names, {{"no_proxy", "127.0.0.1"}});
  }

 private:
  TempDir temp_;
};

// False where the program was built without libcurl: it then only says how to do it by hand.
bool downloads() {
  static const bool built = [] {
    const LoopbackSocket dead(false);
    const ProcessResult r = FetchFolder().fetch({{"set", set_of({dead.url()}, {entry("a", "x")})}});
    CHECK(r.code == 3);
    CHECK(contains(r.err, "By hand, where there is a network:"));
    return !contains(r.err, "built without libcurl");
  }();
  return built;
}

std::string octal(size_t value, int digits) {
  std::string out;
  for (int i = 0; i < digits; ++i, value /= 8) out.insert(out.begin(), static_cast<char>('0' + value % 8));
  return out;
}
// A tar archive (POSIX ustar). type: '0' file, '2' link.
struct TarMember {
  std::string name, content;
  char type = '0';
  std::string link = {};
};
std::string tar(const std::vector<TarMember>& members) {
  constexpr size_t kBlock = 512;
  std::string out;
  for (const TarMember& m : members) {
    std::string head(kBlock, '\0');
    const auto put = [&](size_t at, const std::string& text) { head.replace(at, text.size(), text); };
    put(0, m.name);
    put(100, octal(0644, 7));
    put(108, octal(0, 7));
    put(116, octal(0, 7));
    put(124, octal(m.content.size(), 11));
    put(136, octal(0, 11));
    put(148, "        ");
    put(156, std::string(1, m.type));
    put(157, m.link);
    put(257, std::string("ustar\00000", 8));
    size_t sum = 0;
    for (const char c : head) sum += static_cast<uint8_t>(c);
    put(148, octal(sum, 6) + std::string("\0 ", 2));
    out += head + m.content + std::string((kBlock - m.content.size() % kBlock) % kBlock, '\0');
  }
  return out + std::string(2 * kBlock, '\0');
}
// A set `set` of files d/a and d/b in the archive x.tar.gz.
Json archive_set(const Texts& mirrors, const std::string& archive, const std::string& a, const std::string& b) {
  Json set = set_of(mirrors, {entry("d/a", a), entry("d/b", b)});
  set["archive"] = entry("x.tar.gz", archive);
  return {{"set", set}};
}

}  // namespace

TEST_CASE("fetch puts files into their places, and a second time finds them there") {
  if (!downloads()) return;
  std::vector<uint8_t> images = idx_header({2, 1, 2}), labels = idx_header({2});
  images.insert(images.end(), {1, 2, 3, 4});
  labels.insert(labels.end(), {0, 1});
  const std::string x = gzipped({images.begin(), images.end()}), y = gzipped({labels.begin(), labels.end()});
  const HttpServer server({{"/x.gz", {.body = x}}, {"/y.gz", {.where = "/moved"}}, {"/moved", {.body = y}}});
  const FetchFolder folder;
  const Json list{{"set", set_of({server.url()}, {entry("mnist/x.gz", x), entry("mnist/y.gz", y)})}};
  const ProcessResult r = folder.fetch(list);
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, folder.path("data/mnist/x.gz") + ": " + std::to_string(x.size()) + " bytes from " +
                            server.url() + "x.gz\n"));
  CHECK((folder.read("data/mnist/x.gz") == x));
  CHECK_FALSE(folder.holds("data/mnist/x.gz.part"));
  bitgrad::DatasetSpec spec;
  spec.format = "idx";
  spec.root = folder.path("data");
  spec.images = "mnist/x.gz";
  spec.labels = "mnist/y.gz";
  CHECK(make_dataset(spec)->size() == 2);
  const size_t asked = server.requests().size();
  const ProcessResult again = folder.fetch(list);
  CHECK(again.code == 0);
  CHECK(again.out == "set: all 2 files are in " + folder.path("data") + " already\n");
  CHECK(server.requests().size() == asked);
}

TEST_CASE("fetch refuses other bytes than those of the list, and reports what each mirror gave") {
  if (!downloads()) return;
  const std::string good = noise(1000);
  std::string other = good;
  other[500] ^= 1;
  const HttpServer server({{"/1/a", {.body = other}},
                           {"/2/a", {.body = good.substr(0, 900)}},
                           {"/3/a", {.body = good + "more"}},
                           {"/5/a", {.body = good}}});
  const LoopbackSocket dead(false);
  const FetchFolder folder;
  const std::string root = server.url();
  Texts mirrors{root + "1", root + "2/", root + "3/", root + "4/", dead.url()};
  const ProcessResult r = folder.fetch({{"set", set_of(mirrors, {entry("a", good)})}});
  CHECK(r.code == 3);
  CHECK(contains(r.err, "error: [data fetch] set could not be fetched:\n  " + root + "1/a: got SHA-256 " +
                            bitgrad::sha256_hex(other.data(), other.size()) + ", expected "));
  CHECK(contains(r.err, root + "2/a: got 900 bytes, expected 1000\n"));
  CHECK(contains(r.err, root + "3/a: got more than 1000 bytes, expected as many\n"));
  CHECK(contains(r.err, root + "4/a: The requested URL returned error: 404"));
  CHECK(contains(r.err, dead.url() + "a: "));
  CHECK(contains(r.err, "By hand, where there is a network:\n  fetch " + root + "1/a\n    as " + folder.path("data/a") +
                            " (1000 bytes, SHA-256 "));
  CHECK(contains(r.err, "then run the same command again: it checks them\n"));
  CHECK_FALSE(folder.holds("data/a"));
  CHECK_FALSE(folder.holds("data/a.part"));
  // The first good one ends the search, and is asked first for the next file.
  mirrors.push_back(root + "5/");
  const ProcessResult found = folder.fetch({{"set", set_of(mirrors, {entry("a", good)})}});
  INFO(found.err);
  CHECK(found.code == 0);
  CHECK((folder.read("data/a") == good));
}

TEST_CASE("the mirror that gave a file is asked first for the next") {
  if (!downloads()) return;
  const HttpServer server({{"/a", {.body = "one"}}, {"/b", {.body = "two"}}}), empty({});
  const FetchFolder folder;
  const std::vector<Json> files{entry("a", "one"), entry("b", "two")};
  CHECK(folder.fetch({{"set", set_of({empty.url(), server.url()}, files)}}).code == 0);
  CHECK(folder.read("data/b") == "two");
  CHECK(empty.requests() == Texts{"/a"});
}

TEST_CASE("an interrupted download goes on where it ended, and a wrong beginning starts anew") {
  if (!downloads()) return;
  const std::string good = noise(5000);
  const FetchFolder folder;
  {
    const HttpServer server({{"/a", {.body = good, .cut = 2000}}});
    const ProcessResult cut = folder.fetch({{"set", set_of({server.url()}, {entry("a", good)})}});
    CHECK(cut.code == 3);
    CHECK(contains(cut.err, server.url() + "a: transfer closed with 3000 bytes remaining"));
  }
  CHECK((folder.read("data/a.part") == good.substr(0, 2000)));
  const HttpServer server({{"/a", {.body = good}}, {"/whole/a", {.body = good, .ranges = false}}});
  const Json list{{"set", set_of({server.url()}, {entry("a", good)})}};
  CHECK(folder.fetch(list).code == 0);
  CHECK((folder.read("data/a") == good));
  CHECK(server.requests() == Texts{"/a 2000-"});
  // Another beginning, found out by the checksum.
  std::filesystem::remove(folder.path("data/a"));
  folder.write("data/a.part", std::string(2000, 'x'));
  CHECK(folder.fetch(list).code == 0);
  CHECK((folder.read("data/a") == good));
  CHECK(server.requests() == Texts{"/a 2000-", "/a 2000-", "/a"});
  // A whole one, one that is too long, and a server that gives no parts.
  const auto from_part = [&](const std::string& part, const Json& from) {
    std::filesystem::remove(folder.path("data/a"));
    folder.write("data/a.part", part);
    CHECK(folder.fetch(from).code == 0);
    CHECK((folder.read("data/a") == good));
    CHECK_FALSE(folder.holds("data/a.part"));
  };
  from_part(good, list);
  CHECK(server.requests().size() == 3);
  from_part(good + "x", list);
  CHECK(server.requests().back() == "/a");
  from_part(good.substr(0, 10), {{"set", set_of({server.url() + "whole/"}, {entry("a", good)})}});
}

TEST_CASE("fetch replaces a differing file only with --force") {
  const std::string good = noise(100);
  const HttpServer server({{"/a", {.body = good}}, {"/b", {.body = good}}});
  const FetchFolder folder;
  folder.write("data/b", "mine");
  const Json list{{"set", set_of({server.url()}, {entry("a", good), entry("b", good)})}};
  const ProcessResult r = folder.fetch(list);
  CHECK(r.code == 2);
  CHECK(contains(r.err, "'" + folder.path("data/b") + "' exists and is another file: got 4 bytes, expected 100 of "));
  CHECK(
      contains(r.err, "Move it away, name another folder with -o, or overwrite it with --force. Nothing was fetched"));
  CHECK_FALSE(folder.holds("data/a"));
  CHECK(folder.read("data/b") == "mine");
  if (!downloads()) return;
  CHECK(folder.fetch(list, {"set"}, {"--force"}).code == 0);
  CHECK((folder.read("data/b") == good));
  std::filesystem::remove(folder.path("data/b"));
  std::filesystem::create_directories(folder.path("data/b"));
  CHECK(contains(folder.fetch(list).err, "got a folder, expected the place of a file"));
}

TEST_CASE("an archive is unpacked, and one that was put there by hand is used") {
  if (!downloads()) return;
  const std::string a = noise(700), b = noise(30);
  const std::string good = gzipped(tar({{"d/a", a}, {"./d/b", b}, {"d/readme", "not asked for"}}));
  const HttpServer server({{"/x.tar.gz", {.body = good}}});
  const FetchFolder folder;
  const ProcessResult r = folder.fetch(archive_set({server.url()}, good, a, b));
  INFO(r.err);
  if (contains(r.err, "built without libarchive")) return;
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, folder.path("data/d/b") + ": 30 bytes, unpacked\n"));
  CHECK((folder.read("data/d/a") == a));
  CHECK((folder.read("data/d/b") == b));
  CHECK_FALSE(folder.holds("data/d/readme"));
  CHECK_FALSE(folder.holds("data/x.tar.gz"));
  CHECK(contains(folder.fetch(archive_set({server.url()}, good, a, b)).out, "set: all 2 files are in "));
  std::filesystem::remove(folder.path("data/d/a"));
  folder.write("data/x.tar.gz", good);
  const LoopbackSocket dead(false);
  CHECK(folder.fetch(archive_set({dead.url()}, good, a, b)).code == 0);
  CHECK((folder.read("data/d/a") == a));
  CHECK(folder.holds("data/x.tar.gz"));  // not of the program
}

TEST_CASE("archives that are damaged, lack a member or lead out of the folder change nothing") {
  if (!downloads()) return;
  const std::string a = noise(700), b = noise(30), whole = gzipped(tar({{"d/a", a}, {"d/b", b}}));
  const auto refused = [&](const std::string& archive) {
    const HttpServer server({{"/x.tar.gz", {.body = archive}}});
    const FetchFolder folder;
    const ProcessResult r = folder.fetch(archive_set({server.url()}, archive, a, b));
    CHECK((r.code == 3 || contains(r.err, "built without libarchive")));
    CHECK_FALSE(folder.holds("data/d/a"));
    CHECK_FALSE(folder.holds("data/d/a.part"));
    CHECK_FALSE(folder.holds("evil"));
    return contains(r.err, "built without libarchive") ? std::string() : r.err;
  };
  const std::string built = refused(gzipped(tar({{"d/a", a}})));
  if (built.empty()) return;
  CHECK(contains(built, "x.tar.gz: got no member 'd/b', expected one"));
  for (const char* path : {"../evil", "d/../../evil", "/evil"})
    CHECK(contains(refused(gzipped(tar({{"d/a", a}, {path, "x"}, {"d/b", b}}))), "which leads out of the folder"));
  CHECK(contains(refused(gzipped(tar({{"d/a", "", '2', "/etc/passwd"}, {"d/b", b}}))),
                 "member 'd/a': got a link or a folder, expected a file"));
  CHECK(
      contains(refused(gzipped(tar({{"d/a", a.substr(1)}, {"d/b", b}}))), "member 'd/a': got 699 bytes, expected 700"));
  std::string other = a;
  other[0] ^= 1;
  CHECK(contains(refused(gzipped(tar({{"d/a", other}, {"d/b", b}}))), "member 'd/a': got SHA-256 "));
  CHECK(contains(refused(whole.substr(0, whole.size() / 2)), "damaged archive: got '"));
  CHECK(contains(refused("no archive"), "damaged archive: got '"));
}

TEST_CASE("fetch reports unknown names and lists") {
  const FetchFolder folder;
  const Json good{{"set", set_of({"http://127.0.0.1:9/"}, {entry("a", "x")})}};
  const ProcessResult name = folder.fetch(good, {"sets"});
  CHECK(name.code == 2);
  CHECK(contains(name.err, "unknown data set 'sets'. Did you mean 'set'?"));
  const ProcessResult unknown = cli({"data", "fetch", "mnits", "-o", folder.path("data")});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "Did you mean 'mnist'?"));
  CHECK(contains(unknown.err, "fashion_mnist"));
  const auto wrong = [&](const std::string& member, const Json& value) {
    Json list = good;
    Json& set = list["set"];
    (member == "mirrors" || member == "files" ? set[member] : set["files"][0][member]) = value;
    const ProcessResult r = folder.fetch(list);
    CHECK(r.code == 3);
    CHECK(contains(r.err, folder.path("mirrors.json") + ": "));
    return r.err;
  };
  CHECK(contains(wrong("mirrors", Json::array()), "set 'set': got no mirrors or no files, expected one or more"));
  CHECK(contains(wrong("mirrors", Texts{"ftp://x/"}), "mirrors: got 'ftp://x/', expected http://... or https://..."));
  CHECK(contains(wrong("mirrors", 5), "mirrors.json: "));
  for (const char* path : {"../a", "/a", "a/../b", "a//b", "", "./a"})
    CHECK(contains(wrong("path", path), "expected a path below the folder of the data"));
  CHECK(contains(wrong("bytes", 0), "bytes of 'a': got 0, expected 1 or more"));
  CHECK(contains(wrong("sha256", "ABC"), "sha256 of 'a': got 'ABC', expected 64 digits"));
  CHECK(contains(cli({"data", "fetch", "mnist", "--json"}).err, "--json is of bitgrad data info"));
  CHECK(contains(cli({"data", "info", "x", "--mirrors", "y"}).err, "--mirrors is of bitgrad data fetch"));
}

TEST_CASE("without a network fetch reports which files to put where, for each built-in set") {
  const LoopbackSocket dead(false);
  const FetchFolder folder;
  const ProcessResult r =
      cli({"data", "fetch", "mnist", "fashion_mnist", "cifar10"}, {{"BITGRAD_DATA", folder.path("data")},
                                                                   {"http_proxy", dead.url()},
                                                                   {"https_proxy", dead.url()},
                                                                   {"no_proxy", ""}});
  CHECK(r.code == 3);
  for (const char* text :
       {"mnist could not be fetched:", "fashion_mnist could not be fetched:", "cifar10 could not be fetched:"})
    CHECK(contains(r.err, text));
  CHECK(
      contains(r.err, "  fetch https://storage.googleapis.com/cvdf-datasets/mnist/t10k-labels-idx1-ubyte.gz\n    as " +
                          folder.path("data/mnist/t10k-labels-idx1-ubyte.gz") + " (4542 bytes, SHA-256 f7ae60f9"));
  CHECK(contains(r.err, "as " + folder.path("data/cifar-10-binary.tar.gz") + " (170052171 bytes, SHA-256 c4a38c50"));
  CHECK(contains(r.err, "it checks and unpacks them"));
}
