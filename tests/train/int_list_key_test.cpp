// Keys of one whole number or a list of them, as YAML.
#include "config/schema.h"
#include "config/steps.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using namespace config;

KeySpec padding() { return {{"padding", Type::kInts, "[0, 4]", "0", "pixels", {"same"}, 4}, "layer.pool"}; }

// The value that a text has, or what is wrong with it.
std::pair<Value, std::string> read(const std::string& yaml) {
  const SourceText text(yaml, 0);
  Report report("key", text);
  config::Node node;
  REQUIRE(read_yaml(text, report, node));
  Value value;
  const KeySpec spec = padding();
  std::string wrong = use_of(spec.type).read(spec, node, value);
  return {value, wrong};
}

}  // namespace

TEST_CASE("a key of whole numbers reads a number, a list of its length and its words, and names what it refuses") {
  CHECK(expects(padding()) == "a whole number in [0, 4] or a list of 4 of them, or same");
  CHECK(read("3") == std::pair(Value(int64_t{3}), std::string()));
  CHECK(read("[0, 1, 0, 1]") == std::pair(Value(std::vector<int64_t>{0, 1, 0, 1}), std::string()));
  CHECK(read("same") == std::pair(Value(std::string("same")), std::string()));
  const std::string expected = "expected a whole number in [0, 4] or a list of 4 of them, or same";
  CHECK(read("[1, 2]").second == "got a list of 2, " + expected);
  CHECK(read("[]").second == "got a list of 0, " + expected);
  CHECK(read("[0, 0, 0, 5]").second == "5 is out of range [0, 4]");
  CHECK(read("[0, 0, 0, x]").second == "got 'x', " + expected);
  CHECK(read("5").second == "5 is out of range [0, 4]");
  CHECK(read("valid").second == "got 'valid', " + expected);
  CHECK(read("\"same\"") == std::pair(Value(std::string("same")), std::string()));
  CHECK(read("\"3\"").second == "got the text \"3\", " + expected);
  CHECK(read("{a: 1}").second == "got a map, " + expected);
}

}  // namespace bitgrad
