// Patterns of tokenizer.json: the pieces of a text are those of the package tokenizers (0.23.3, Oniguruma).
#include "data/oniguruma.h"

#include <string>

#include "bitgrad/base/error.h"
#include "data/split_pattern.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kText =
    "ab\xe4\xb8\xad"
    "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]";

struct Case {
  std::string pattern, pieces;  // Split, behavior isolated; joined by |
};
const Case kCases[] = {
    {R"x([\p{L}&&[^\p{Han}]]+)x",
     "ab|\xe4\xb8\xad|Cd| 12|f|\n|x|\xe1\xa0\x8e|y|_\xe2\x80\x83|Z|1234567 |\xc3\xa9|\xcc\x81 \xe2\x85\xa7 "
     "|\xef\xbd\x81|\n\n|end|\x0b&-]"},
    {R"x([^a-c&&[^d]]+)x",
     "ab|\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([a[b-d]1-3]+)x",
     "ab|\xe4\xb8\xad"
     "C|d| |12|f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|123|4567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nen|d|\x0b&-]"},
    {R"x([^[ab]\s]+)x",
     "ab|\xe4\xb8\xad"
     "Cd| |12f|\n|x\xe1\xa0\x8ey_|\xe2\x80\x83|Z1234567| |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n\n|end|\x0b|&-]"},
    {R"x(\h+)x",
     "ab|\xe4\xb8\xad|Cd| |12f|\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|1234567| \xc3\xa9\xcc\x81 \xe2\x85\xa7 "
     "\xef\xbd\x81\n\n|e|n|d|\x0b&-]"},
    {R"x(\H+)x",
     "ab|\xe4\xb8\xad|Cd| |12f|\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|1234567| \xc3\xa9\xcc\x81 \xe2\x85\xa7 "
     "\xef\xbd\x81\n\n|e|n|d|\x0b&-]"},
    {R"x(^[a-z])x",
     "a|b\xe4\xb8\xad"
     "Cd 12f\n|x|\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\n|e|nd\x0b&-]"},
    {R"x([a-z0-9]$)x",
     "ab\xe4\xb8\xad"
     "Cd 12|f|\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x(\w+)x",
     "ab\xe4\xb8\xad"
     "Cd| |12f|\n|x|\xe1\xa0\x8e|y_|\xe2\x80\x83|Z1234567| |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n\n|end|\x0b&-]"},
    {R"x(\W+)x",
     "ab\xe4\xb8\xad"
     "Cd| |12f|\n|x|\xe1\xa0\x8e|y_|\xe2\x80\x83|Z1234567| |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n\n|end|\x0b&-]"},
    {R"x(\bx)x",
     "ab\xe4\xb8\xad"
     "Cd 12f\n|x|\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([[:space:]]+)x",
     "ab\xe4\xb8\xad"
     "Cd| |12f|\n|x\xe1\xa0\x8ey_|\xe2\x80\x83|Z1234567| |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n\n|end|\x0b|&-]"},
    {R"x([\S&&[^0-9]]+)x",
     "ab\xe4\xb8\xad"
     "Cd| 12|f|\n|x\xe1\xa0\x8ey_|\xe2\x80\x83|Z|1234567 |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n\n|end|\x0b|&-]"},
    {R"x(\p{N}{1,3}+)x",
     "ab\xe4\xb8\xad"
     "Cd |12|f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|1234567| \xc3\xa9\xcc\x81 |\xe2\x85\xa7| \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x(\p{N}{,2}3)x",
     "ab\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|123|4567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x((?m:x.))x",
     "ab\xe4\xb8\xad"
     "Cd 12f\n|x\xe1\xa0\x8e|y_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x((?m:d.))x",
     "ab\xe4\xb8\xad"
     "C|d |12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nen|d\x0b|&-]"},
    {R"x(\v)x",
     "ab\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend|\x0b|&-]"},
    {R"x(\p{Letter}+)x",
     "ab\xe4\xb8\xad"
     "Cd| 12|f|\n|x|\xe1\xa0\x8e|y|_\xe2\x80\x83|Z|1234567 |\xc3\xa9|\xcc\x81 \xe2\x85\xa7 "
     "|\xef\xbd\x81|\n\n|end|\x0b&-]"},
    {R"x(\u4e2d)x",
     "ab|\xe4\xb8\xad|Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 "
     "\xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([\u4e00-\u9fff])x",
     "ab|\xe4\xb8\xad|Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 "
     "\xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([^\S\n]+)x",
     "ab\xe4\xb8\xad"
     "Cd| |12f\nx\xe1\xa0\x8ey_|\xe2\x80\x83|Z1234567| |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81\n\nend|\x0b|&-]"},
    {R"x([a&&b])x",
     "ab\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([&-]+)x",
     "ab\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b|&-|]"},
    {R"x([]a])x",
     "a|b\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-|]"},
    {R"x(\p{^L}+)x",
     "ab\xe4\xb8\xad"
     "Cd| 12|f|\n|x|\xe1\xa0\x8e|y|_\xe2\x80\x83|Z|1234567 |\xc3\xa9|\xcc\x81 \xe2\x85\xa7 "
     "|\xef\xbd\x81|\n\n|end|\x0b&-]"},
    {R"x(\x{4e2d})x",
     "ab|\xe4\xb8\xad|Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 "
     "\xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([[:^alpha:]]+)x",
     "ab\xe4\xb8\xad"
     "Cd| 12|f|\n|x|\xe1\xa0\x8e|y|_\xe2\x80\x83|Z|1234567 |\xc3\xa9|\xcc\x81 |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n\n|end|\x0b&-]"},
    {R"x([[:upper:][:digit:]]+)x",
     "ab\xe4\xb8\xad|C|d |12|f\nx\xe1\xa0\x8ey_\xe2\x80\x83|Z1234567| \xc3\xa9\xcc\x81 |\xe2\x85\xa7| "
     "\xef\xbd\x81\n\nend\x0b&-]"},
    {R"x((?i)[AB]+)x",
     "ab|\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x(\d+)x",
     "ab\xe4\xb8\xad"
     "Cd |12|f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|1234567| \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x(\B\p{N})x",
     "ab\xe4\xb8\xad"
     "Cd 1|2|f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z|1|2|3|4|5|6|7| \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x(a{,}b|ab)x",
     "ab|\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x([[:punct:]]+)x",
     "ab\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey|_|\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b|&-]"},
    {R"x([a-c&&b-d]+)x",
     "a|b|\xe4\xb8\xad"
     "Cd 12f\nx\xe1\xa0\x8ey_\xe2\x80\x83Z1234567 \xc3\xa9\xcc\x81 \xe2\x85\xa7 \xef\xbd\x81\n\nend\x0b&-]"},
    {R"x(\s+(?!\S)|\s+)x",
     "ab\xe4\xb8\xad"
     "Cd| |12f|\n|x\xe1\xa0\x8ey_|\xe2\x80\x83|Z1234567| |\xc3\xa9\xcc\x81| |\xe2\x85\xa7| "
     "|\xef\xbd\x81|\n|\n|end|\x0b|&-]"},
};

// Not every build has libpcre2.
bool can_split() {
  const std::string error = error_of([] { data::SplitPattern("a"); });
  if (!error.empty()) WARN(error);
  return error.empty();
}

std::string pieces_of(const std::string& pattern, const std::string& text) {
  std::string all;
  data::SplitPattern(pattern).split(text, [&](std::string_view piece, bool) {
    all += all.empty() ? "" : "|";
    all += piece;
  });
  return all;
}

}  // namespace

TEST_CASE("Patterns of Oniguruma cut a text into the pieces that the package tokenizers cuts") {
  if (!can_split()) return;
  for (const Case& c : kCases) {
    INFO(c.pattern << " as " << data::pcre_of_oniguruma(c.pattern));
    CHECK(pieces_of(c.pattern, kText) == c.pieces);
  }
}

TEST_CASE("What has no translation is refused by name and place") {
  const auto refused = [](const std::string& pattern, const std::string& part) {
    const std::string error = error_of([&] { data::pcre_of_oniguruma(pattern); });
    INFO(pattern << ": " << error);
    CHECK(contains(error, part));
  };
  refused("ab\\Q", "'ab\\Q', character 3: \\Q is not supported.");
  refused("a(?i)b", "character 2: an option that does not stand at the begin of a group is not supported.");
  refused("(?x: a)", "character 1: the option 'x' is not supported.");
  refused("(?~ab)", "(?~ is not supported.");
  refused("[a&&[b]", "a set without an end is not supported.");
  refused("[[:graph:]]", "[:graph:] is not supported.");
  refused("\\xe9", "\\x of a byte is not supported.");
}

TEST_CASE("Matches that read far ahead at each place end by a bound of their sum, whatever the window") {
  if (!can_split()) return;
  const std::string far = "a(?=[^b]*b)|a";
  CHECK(pieces_of(far, "aab") == "a|a|b");
  const std::string error = error_of([&] { pieces_of(far, std::string(300'000, 'a')); });
  CHECK(contains(error, "of a text of 300000: the matches looked at"));
  // One word longer than all windows is read once, and ends where the text says.
  const std::string word(100'000, 'a'), two = word + ' ' + word;
  CHECK(pieces_of("a+", two) == word + "| |" + word);
  CHECK(pieces_of("a+$", two + "\nb") == word + " |" + word + "|\nb");
  std::string wide;
  for (int i = 0; i < 20'000; ++i) wide += "\xe4\xb8\xad";  // windows end between characters
  CHECK(pieces_of("\\p{L}+|b", wide + "b ") == wide + "b| ");
}
