// Patterns of tokenizer.json: the pieces of a text are those of the package tokenizers (0.23.3, Oniguruma).
#include "data/tokenizer_text.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bitgrad/base/error.h"
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

namespace {

// Characters whose properties are those of Unicode 14 in later versions, too.
std::string sample_of_characters() {
  constexpr std::pair<uint32_t, uint32_t> kRanges[] = {{0, 0x87f},       {0x900, 0x9ff},   {0xe00, 0xe7f},
                                                       {0x1d00, 0x20bf}, {0x2100, 0x23ff}, {0x3000, 0x30ff},
                                                       {0x4e00, 0x9fff}, {0xfe00, 0xffef}};
  std::string out;
  for (const auto& [first, last] : kRanges)
    for (uint32_t c = first; c <= last; ++c) {
      if (c >= 0x800) out += static_cast<char>(0xE0 | (c >> 12));
      if (c >= 0x800) out += static_cast<char>(0x80 | ((c >> 6) & 63));
      if (c >= 0x80 && c < 0x800) out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(c < 0x80 ? c : 0x80 | (c & 63));
    }
  return out;
}

struct ClassCase {
  std::string pattern;
  int64_t count;  // of the sample's characters
  uint32_t hash;  // FNV-1a of them
};
const ClassCase kClasses[] = {
    {R"x(\w)x", 24534, 0x7def9e04},
    {R"x(\W)x", 1498, 0xba52de9e},
    {R"x([\w])x", 24528, 0x432c7ce9},
    {R"x([^\w])x", 1504, 0xe53ed82b},
    {R"x([^\W\d])x", 24448, 0xc2ae032d},
    {R"x(\d)x", 80, 0xed8f5355},
    {R"x(\s)x", 24, 0x27646fb9},
    {R"x(\S)x", 26008, 0x0b207b13},
    {R"x(\h)x", 22, 0x7b117da2},
    {R"x(.)x", 26031, 0x929bca67},
    {R"x(\O)x", 26032, 0xf8310985},
    {R"x(\p{Han})x", 21007, 0x8fb5ec83},
    {R"x(\P{Han})x", 5025, 0x54cfe933},
    {R"x(\p{^Han})x", 5025, 0x54cfe933},
    {R"x([^\p{Han}])x", 5025, 0x54cfe933},
    {R"x([\p{L}&&[^\p{Han}]])x", 2923, 0x89c2e75a},
    {R"x(\p{Hiragana})x", 89, 0x7418269c},
    {R"x(\p{katakana})x", 148, 0x1d294c21},
    {R"x(\p{Latin})x", 1104, 0x55e4a268},
    {R"x(\p{Latn})x", 1104, 0x55e4a268},
    {R"x(\p{Arabic})x", 442, 0x8457a6de},
    {R"x(\p{Cyrillic})x", 306, 0x442bb479},
    {R"x(\p{Greek})x", 367, 0x898efe41},
    {R"x(\p{Devanagari})x", 122, 0xc34c85dc},
    {R"x(\p{Common})x", 1286, 0x45d68123},
    {R"x(\p{Inherited})x", 232, 0x9b2bf811},
    {R"x(\p{Alphabetic})x", 24183, 0x1b2c997f},
    {R"x(\p{Alpha})x", 24183, 0x1b2c997f},
    {R"x(\P{Alpha})x", 1849, 0x9d1ac9f3},
    {R"x([\P{Alpha}])x", 1849, 0x9d1ac9f3},
    {R"x([[:alpha:]])x", 24183, 0x1b2c997f},
    {R"x([[:^alpha:]])x", 1849, 0x9d1ac9f3},
    {R"x([[:alnum:]])x", 24263, 0xbc8c6509},
    {R"x([[:lower:]])x", 1109, 0xc38a5747},
    {R"x([[:upper:]])x", 732, 0xe1d64f3c},
    {R"x([[:punct:]])x", 1141, 0x1f2db996},
    {R"x([[:^punct:]])x", 24891, 0x8af9e112},
    {R"x([[:graph:]])x", 25741, 0xe7fdc404},
    {R"x([[:print:]])x", 25757, 0x5a5a7919},
    {R"x([[:space:]])x", 24, 0x27646fb9},
    {R"x([[:blank:]])x", 17, 0x8d5d2819},
    {R"x([[:cntrl:]])x", 65, 0xded1b7ae},
    {R"x([[:digit:]])x", 80, 0xed8f5355},
    {R"x([[:xdigit:]])x", 22, 0x7b117da2},
    {R"x([[:word:]])x", 24528, 0x432c7ce9},
    {R"x(\p{word})x", 24534, 0x7def9e04},
    {R"x([\p{word}])x", 24528, 0x432c7ce9},
    {R"x(\p{alnum})x", 24263, 0xbc8c6509},
    {R"x(\p{punct})x", 300, 0x9bfe8d23},
    {R"x(\p{graph})x", 25741, 0xe7fdc404},
    {R"x(\p{Lowercase})x", 1109, 0xc38a5747},
    {R"x(\p{Uppercase_Letter})x", 716, 0x2809fc0c},
    {R"x(\p{L})x", 23917, 0x2ca87f22},
    {R"x(\p{M})x", 469, 0x3ed3d362},
    {R"x(\p{Mc})x", 23, 0xec2712d6},
    {R"x(\p{N})x", 178, 0xcd4f131e},
    {R"x(\p{P})x", 300, 0x9bfe8d23},
    {R"x(\p{S})x", 841, 0x40639a78},
    {R"x(\p{Z})x", 18, 0x6951e537},
    {R"x(\p{C})x", 309, 0x175022f3},
    {R"x(\p{Lm})x", 182, 0x6435fbea},
    {R"x(\p{Emoji})x", 46, 0xc58d91b0},
    {R"x(\p{Cased})x", 1872, 0x1f4857f3},
    {R"x(\p{ID_Continue})x", 24536, 0x76e5b20a},
    {R"x(\p{XID_Start})x", 23959, 0xcd0a98c8},
    {R"x(\p{White_Space})x", 24, 0x27646fb9},
    {R"x(\p{Assigned})x", 25824, 0x0008bd2d},
    {R"x(\p{CWU})x", 828, 0xcc0b81a1},
};

}  // namespace

TEST_CASE("Classes and properties hold the characters that they hold in the package tokenizers") {
  if (!can_split()) return;
  const std::string text = sample_of_characters();
  for (const ClassCase& c : kClasses) {
    INFO(c.pattern << " as " << data::pcre_of_oniguruma(c.pattern));
    int64_t count = 0;
    uint32_t hash = 2166136261U;
    data::SplitPattern(c.pattern).split(text, [&](std::string_view piece, bool match) {
      if (!match) return;
      ++count;
      for (const char byte : piece) hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619U;
    });
    CHECK(count == c.count);
    CHECK(hash == c.hash);
  }
}

TEST_CASE("A word of any usual length fits: sets in sets, and repeats of groups that go back") {
  if (!can_split()) return;
  const std::string word(50'000, 'a');
  CHECK(pieces_of(R"([\p{L}\p{M}&&[^\p{Han}]]+|\p{N}+)", word + " 12") == word + "| |12");
  CHECK(pieces_of("(?:a|b)+c|[ab]+", word + " b") == word + "| |b");
  const std::string error = error_of([&] { pieces_of("(a|a)*b|a", word); });
  CHECK(contains(error, "matching stopped at byte 0 of a text of 50000: "));
  CHECK(!contains(error, "JIT"));
}

TEST_CASE("What has no translation is refused by name and place") {
  const auto refused = [](const std::string& pattern, const std::string& part) {
    const std::string error = error_of([&] { data::pcre_of_oniguruma(pattern); });
    INFO(pattern << ": " << error);
    CHECK(contains(error, part));
  };
  refused("ab\\Q", "'ab\\Q', character 3: \\Q is not supported.");
  refused("a(?i)b", "character 2: an option that is not at the start of a group is not supported.");
  refused("(?x: a)", "character 1: the option 'x' is not supported.");
  refused("(?~ab)", "(?~ is not supported.");
  refused("[a&&[b]", "a set without an end is not supported.");
  refused("[[:foo:]]", "[:foo:] is not supported.");
  refused("a\\pL", "'a\\pL', character 2: \\p without {...} is not supported.");
  refused("\\p{Script=Han}", "\\p{Script=Han} is not supported.");
  refused("\\xe9", "\\x of a byte is not supported.");
}

TEST_CASE("Matches that read far ahead at each place are bounded by their sum, for any window") {
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
