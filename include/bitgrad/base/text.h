// Texts that help: the nearest known name to a mistyped one, tables, foreign bytes made visible.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

// Number of single-letter insertions, deletions, replacements and swaps of neighbours between two words
// (Damerau-Levenshtein, restricted).
int edit_distance(std::string_view a, std::string_view b);
// The known name nearest to `name`, or "" when none is near enough to be meant (distance at most 1 + a third of the
// length).
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);
// "unknown layer 'linaer'. Did you mean 'linear'? Known: ..."
std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known);
// Bytes of the character at the begin of `text`, 0 where it is not well-formed UTF-8 (Unicode 15, table 3-7).
size_t utf8_bytes(std::string_view text);
// `text` with every byte that a terminal would obey instead of showing as \xNN: control characters (U+0000 to U+001F,
// U+007F to U+009F) and what is not UTF-8. For text from a file, before it meets a person.
std::string printable(std::string_view text);
// The same, but line ends and tabs stay: a message of several lines.
std::string printable_lines(std::string_view text);
// Lines of cells as columns, each as wide as its widest cell, two blanks apart; one line of text for each. Cells are
// made printable.
std::string text_table(const std::vector<std::vector<std::string>>& lines);

}  // namespace bitgrad
