#include "bitgrad/base/text.h"

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("bytes that a terminal would obey are shown, characters stay") {
  CHECK(printable("plain text, 100 %") == "plain text, 100 %");
  CHECK(printable("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m");
  CHECK(printable("a\nb\tc\rd\x7f") == "a\\nb\\tc\\x0dd\\x7f");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("caf\u00e9 \u4e2d \U0001f600") == "caf\u00e9 \u4e2d \U0001f600");
  CHECK(printable("\u009b2J \u0085 \u00a0") == "\\xc2\\x9b2J \\xc2\\x85 \u00a0");  // C1 controls, not what follows them
  CHECK(printable_lines("a\nb\tc\rd\x1b") == "a\nb\tc\\x0dd\\x1b");
  CHECK(printable("") == "");
  for (const char* turns : {"\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e",
                            "\u2066", "\u2067", "\u2068", "\u2069"}) {
    const std::string text = printable(concat("a", turns, "b"));
    CHECK(text.starts_with("a\\u{20"));
    CHECK(printable_lines(turns) == text.substr(1, text.size() - 2));
  }
  CHECK(printable("\u202e") == "\\u{202e}");
  CHECK(printable("\u200d\u2030\u2065\u206a") == "\u200d\u2030\u2065\u206a");
}

TEST_CASE("long lines are broken at blanks, below their last column") {
  CHECK(wrap_lines("short\n", 10) == "short\n");
  CHECK(wrap_lines("one two three four", 10) == "one two\nthree four");
  CHECK(wrap_lines("  one two three", 10) == "  one two\n  three");
  CHECK(wrap_lines("ab  one two three\n\nx", 12) == "ab  one two\n    three\n\nx");
  CHECK(wrap_lines("a averyverylongword b", 10) == "a\naveryverylongword\nb");
  CHECK(wrap_lines("averyverylongword b", 10) == "averyverylongword\nb");
  CHECK(wrap_lines("\u00e4\u00e4\u00e4 \u00e4\u00e4\u00e4 b", 7) == "\u00e4\u00e4\u00e4 \u00e4\u00e4\u00e4\nb");
  CHECK(wrap_lines("a b  12345678 90", 12) == "a b  12345678\n     90");
  CHECK(wrap_lines("", 5).empty());
}

TEST_CASE("bytes that are not UTF-8 are shown one by one") {
  CHECK(printable("\x80\xff") == "\\x80\\xff");
  CHECK(printable("a\xc3") == "a\\xc3");                           // cut short
  CHECK(printable("\xe4\xb8x") == "\\xe4\\xb8x");                  // cut short by a letter
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // '/' in two bytes
  CHECK(printable("\xe0\x82\x9b") == "\\xe0\\x82\\x9b");           // U+009B in three bytes
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    CHECK((printable(text) == text) == (byte >= 0x20 && byte < 0x7f));
  }
}

TEST_CASE("errors, log lines, tables and hints show the bytes of foreign text") {
  CHECK(error_of([] { fail("file", "got '\x1b]0;title\a', expected a name.\nHint: none."); }) ==
        "[file] got '\\x1b]0;title\\x07', expected a name.\nHint: none.");
  std::string line;
  set_log_sink([&](LogLevel, std::string_view text) { line = text; });
  log(LogLevel::kWarning, "from '\x1b[2J'");
  set_log_sink(nullptr);
  CHECK(line == "from '\\x1b[2J'");
  CHECK(text_table({{"a\x1b", "b"}, {"1", "2\n3"}}) == "a\\x1b  b\n1      2\\n3\n");
  CHECK(unknown_name("dtype", "x\ny\x1b", {"int8"}) == "unknown dtype 'x\\ny\\x1b'. Known: int8");
}

namespace {

// A buffer that has no room.
class NoRoom final : public std::streambuf {
 protected:
  int_type overflow(int_type) override { throw std::bad_alloc(); }
  std::streamsize xsputn(const char*, std::streamsize) override { throw std::bad_alloc(); }
  int_type underflow() override { throw std::bad_alloc(); }
};

}  // namespace

TEST_CASE("text streams throw what goes wrong inside; those of the standard library keep it to themselves") {
  NoRoom none;
  std::ostringstream plain;
  plain.std::ios::rdbuf(&none);
  plain << "text" << 1.5;
  CHECK(plain.bad());  // and that is all
  TextWriter out;
  out.std::ios::rdbuf(&none);
  out.clear();
  CHECK_THROWS_AS(out << "text", std::bad_alloc);
  TextWriter number;
  number.std::ios::rdbuf(&none);
  CHECK_THROWS_AS(number << 1.5, std::bad_alloc);
  TextReader in("a b");
  in.std::ios::rdbuf(&none);
  std::string word;
  CHECK_THROWS_AS(std::getline(in, word), std::bad_alloc);
  TextReader words("one 2 x");
  int two = 0, none_left = 0;
  words >> word >> two;
  CHECK(word == "one");
  CHECK(two == 2);
  CHECK_FALSE(words >> none_left);  // another form: a state, as usual
}
