// The texts that configurations come from: YAML that is refused, bytes, limits, files and folders.
#include <cstdlib>
#include <filesystem>

#include "config/source.h"
#include "support/temp_dir.h"
#include "train/config_support.h"

namespace bitgrad {

using namespace test;

namespace {

// Sets an environment variable for a scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    if (old) old_ = old;
    had_ = old != nullptr;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Environment() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_;
};

}  // namespace

TEST_CASE("what YAML offers beyond plain maps, lists and scalars is refused at its place") {
  CHECK(places("a: &x 5\nb: *x\nc: !foo 3\nd: ! 4\n<<: {e: 1}\n") == "1:4 2:4 3:4 4:4 5:1");
  CHECK(contains(text_error("a: 1\n---\nb: 2\n"), "c.yaml:2:1: error: text after the end of the document"));
  CHECK(contains(text_error(" a: 1\nb: 2\n"), "c.yaml:2:1: error: text after the end"));
  CHECK(contains(text_error("? {a: 1}\n: 2\n"), "c.yaml:1:3: error: a key must be a word"));
  CHECK(contains(text_error("~: 2\n"), "c.yaml:1:1: error: a key must be a word"));
  CHECK(contains(text_error("- 1\n"), "c.yaml:1:1: error: got a list, expected a map"));
  CHECK(contains(text_error("x\n"), "c.yaml:1:1: error: got 'x', expected a map"));
}

TEST_CASE("broken YAML gives its place and one message") {
  CHECK(text_error("version: 1\nrun: {name: x\n")
            .starts_with("c.yaml:2:6: error: broken YAML: the '{' of line 2, column 6 is not closed"));
  for (const char* text :
       {"a: [1, 2\n", "a: {b: 1 c: 2}\n", "a: \"x\n", "a: 1\n b: 2\n", "a: @x\n", "]\n", "a: x: y\n", "a: {b: 1}}\n"}) {
    INFO(text);
    const std::string report = text_error(text);
    CHECK(report.starts_with("c.yaml:"));
    CHECK(contains(report, "error: broken YAML: "));
    CHECK(report.ends_with("1 error. Nothing was started."));
  }
}

TEST_CASE("bytes that are not plain text are refused at their place, CRLF and a byte order mark are accepted") {
  CHECK(contains(text_error("run:\n\tname: x\n"), "c.yaml:2:1: error: a tab as indentation"));
  CHECK(contains(text_error("run: {\xC3\xA9: \xff}\n"), "c.yaml:1:10: error: byte 255 is not valid UTF-8"));
  CHECK(contains(text_error("run: \xED\xA0\x80\n"), "c.yaml:1:6: error: byte 237 is not valid UTF-8"));
  CHECK(contains(text_error(std::string("a: \0b", 5)), "c.yaml:1:4: error: control character with code 0"));
  CHECK(contains(text_error("a: 1\rb: 2\n"), "c.yaml:1:5: error: control character with code 13"));
  CHECK(contains(text_error("\xFF\xFE"
                            "a"),
                 "c.yaml:1:1: error: the file is UTF-16"));
  CHECK(text_error("") ==
        "c.yaml:1:1: error: the configuration is empty; it needs at least version, data.train, model, optim.name, "
        "optim.lr and train.stop\n  1 | \n    | ^\n1 error. Nothing was started.");
  CHECK(contains(text_error("# nothing\n"), "c.yaml:1:1: error: the configuration is empty"));
  std::string crlf;
  for (const char* c = kSmall; *c; ++c) crlf += *c == '\n' ? std::string("\r\n") : std::string(1, *c);
  CHECK((parse_config("\xEF\xBB\xBF" + crlf, "small.yaml") == small({})));
  CHECK(places("\xEF\xBB\xBFvesion: 1\r\nrun: {\xC3\xA9: 1}\r\n").starts_with("1:1 1:1"));
  CHECK(contains(text_error("version: 1\r\nrun: {name: \"\xC3\xA9\", \xC3\xBC: 1}\r\n"),
                 "c.yaml:2:18: error: unknown key '\xC3\xBC'"));
}

TEST_CASE("numbers with a unit and words may be quoted, as JSON has them; numbers may not") {
  const Strings plain = {"train.stop=20 epochs", "train.eval.every=2 epochs", "checkpoint.every=30 steps",
                         "schedule={name: cosine, warmup: 5 steps}", "optim.clip_norm=none"};
  const Strings quoted = {"train.stop=\"20 epochs\"", "train.eval.every='2 epochs'", "checkpoint.every=\"30 steps\"",
                          "schedule={name: cosine, \"warmup\": \"5 steps\"}", "optim.clip_norm=\"none\""};
  CHECK((small(plain) == small(quoted)));
  CHECK((small({"log.quantization=off"}) == small({"log.quantization=\"off\""})));
  CHECK((small({"schedule={name: multistep, at: [1 epochs, 2 epochs], factor: 0.1}"}) ==
         small({R"(schedule={name: multistep, at: ["1 epochs", "2 epochs"], factor: 0.1})"})));
  const auto budget = [](const char* size) {
    return parse_config(with_quant(concat("  budget: ", size, "\n")), "c", {"model.init_from=m.safetensors"});
  };
  CHECK((budget("6 KB") == budget("\"6 KB\"")));
  CHECK((small({}) == parse_config(with_line("train: {stop", "train: {\"stop\": \"3 epochs\"}"), "small.yaml")));
  CHECK(
      contains(small_error({"train.stop=\"20\""}), "train.stop: got the text \"20\", expected a whole number from 1"));
  CHECK(contains(small_error({"optim.lr=\"0.1\""}), "optim.lr: got the text \"0.1\", expected a number"));
}

TEST_CASE("limits of size, depth and count hold exactly") {
  const std::string pad(config::kMaxBytes - std::string(kSmall).size() - 1, '#');
  CHECK_NOTHROW(parse_config(kSmall + pad + "\n", "c.yaml"));
  CHECK(contains(text_error(kSmall + pad + "#\n"), "a configuration has at most 1048576"));
  std::string deep, deeper;
  for (int i = 0; i < config::kMaxDepth; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  deeper = deep + std::string(config::kMaxDepth, ' ') + "a:\n";
  CHECK_FALSE(contains(text_error(deep), "collections inside one another"));
  CHECK(contains(text_error(deeper), "c.yaml:33:33: error: more than 32 collections inside one another"));
  CHECK(contains(text_error("run: {name: " + std::string(config::kMaxScalarBytes, 'x') + "}"), "expected a name"));
  CHECK(contains(text_error("run: {name: " + std::string(config::kMaxScalarBytes + 1, 'x') + "}"),
                 "a value of 65537 bytes"));
  for (const char* bomb : {"[", "{a: ", "- ", "? ", "&a ", "!", "(1,"}) {
    std::string text;
    while (text.size() < 100000) text += bomb;
    INFO(bomb);
    CHECK(text_error(text).starts_with("c.yaml:1:"));
  }
  std::string many;
  for (int i = 0; i < 3000; ++i) many += concat('k', i, ": 1\n");
  CHECK(contains(text_error(many), "and 2806 more.\n3006 errors."));
}

TEST_CASE("data.root is the key, else BITGRAD_DATA, else the folder of the config, and only where files are read") {
  const std::string idx = with_line("data:", "data: {train: {format: idx, images: i, labels: l}}");
  {
    Environment none("BITGRAD_DATA", nullptr);
    CHECK(parse_config(idx, "/some/where/c.yaml").data.root == "/some/where");
    CHECK(parse_config(idx, "c.yaml", {"data.root=/d"}).data.root == "/d");
    CHECK(parse_config(idx, "/some/where/c.yaml", {"data.root=x"}).data.root ==
          (std::filesystem::current_path() / "x").string());
  }
  Environment set("BITGRAD_DATA", "/env");
  CHECK(parse_config(idx, "/some/where/c.yaml").data.root == "/env");
  CHECK(parse_config(with_line("data:", "data: {root: ../d, train: {format: idx, images: i, labels: l}}"),
                     "/some/where/c.yaml")
            .data.root == "/some/d");
  CHECK(small({}).data.root.empty());
  const RunConfig odd = parse_config(idx, "c.yaml", {"data.root=\"/a b: 'c' #d \\\\ \\\"e\\\"\""});
  CHECK(odd.data.root == "/a b: 'c' #d \\ \"e\"");
  CHECK((parse_config(to_yaml(odd), "r.yaml") == odd));
}

TEST_CASE("a file that cannot be read is a usage error that names it") {
  const test::TempDir folder;
  CHECK(contains(error_of([&] { load_config(folder.path() + "/absent.yaml"); }),
                 "absent.yaml: error: the configuration cannot be read"));
  CHECK(contains(error_of([&] { load_config(folder.path()); }), "is a folder"));
  CHECK(test::error_code_of([&] { load_config(folder.path() + "/absent.yaml"); }) == 2);
}

}  // namespace bitgrad
