// Text for people: the nearest known name to a mistyped one, tables, escaping of unprintable bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad {

// Damerau-Levenshtein distance (restricted): insertions, deletions, substitutions and transpositions of neighbors.
int edit_distance(std::string_view a, std::string_view b);
// Returns the known name nearest to `name`, or "" if none is within a distance of 1 + a third of its length.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);
// For example "unknown layer 'linaer'. Did you mean 'linear'? Known: ..."
std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known);
// Size in bytes of the character at the start of `text`; 0 if it is not well-formed UTF-8 (Unicode 15, table 3-7).
size_t utf8_bytes(std::string_view text);
// Returns `text` on one line that shows what it holds: \n and \t for these; other control characters (U+0000 to U+001F,
// U+007F to U+009F), which a terminal would interpret, and bytes that are not UTF-8 as \xNN; characters that end a line
// or turn the direction of writing (U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069) as \u{NNNN}. Use it on any text
// from a file before showing it.
std::string printable(std::string_view text);
// As printable, but keeps newlines and tabs: for texts that are meant to have lines, after their parts were made
// printable.
std::string printable_lines(std::string_view text);
// Formats rows of cells as aligned columns separated by two spaces, one line of text per row. Cells are made printable.
std::string text_table(const std::vector<std::vector<std::string>>& lines);
// Breaks lines of more than `width` characters at blanks. What follows is indented like the last column of the line,
// where columns are separated by two blanks or more, or like the line itself. A longer word stays whole.
std::string wrap_lines(std::string_view text, size_t width = 80);

// Decimal numbers, as configurations and defaults write them.
enum class NumberResult : uint8_t { kOk, kNotANumber, kTooLarge };

// [+-] digits, no leading zeros.
NumberResult parse_whole(std::string_view text, int64_t& value);
// [+-] digits [. digits] [e [+-] digits], digits on at least one side of the point, no leading zeros. kTooLarge: not a
// finite double, or so small that it would become 0.
NumberResult parse_decimal(std::string_view text, double& value);
// The shortest text that reads back as the same double.
std::string number_text(double value);
std::string number_text(float value);             // the same float
std::string_view trimmed(std::string_view text);  // without surrounding blanks

// The texts of the items with `between` between them: joined(names), joined(kinds, ", ", &Kind::name).
template <typename Items, typename Of = std::identity>
std::string joined(const Items& items, std::string_view between = ", ", Of of = {}) {
  TextWriter out;
  bool first = true;
  for (const auto& item : items) out << (std::exchange(first, false) ? "" : between) << std::invoke(of, item);
  return out.str();
}

}  // namespace bitgrad
