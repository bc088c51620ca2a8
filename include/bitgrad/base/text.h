// Text for people: the nearest known name to a mistyped one, tables, escaping of unprintable bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

// Damerau-Levenshtein distance (restricted): insertions, deletions, substitutions and transpositions of neighbors.
int edit_distance(std::string_view a, std::string_view b);
// Returns the known name nearest to `name`, or "" if none is within a distance of 1 + a third of its length.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);
// For example "unknown layer 'linaer'. Did you mean 'linear'? Known: ..."
std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known);
// Size in bytes of the character at the start of `text`; 0 if it is not well-formed UTF-8 (Unicode 15, table 3-7).
size_t utf8_bytes(std::string_view text);
// Whether it is UTF-8 without control characters (U+0000 to U+001F, U+007F): what a configuration may hold.
bool is_plain_text(std::string_view text);
// Returns `text` with control characters (U+0000 to U+001F, U+007F to U+009F), which a terminal would interpret, and
// bytes that are not UTF-8 escaped as \xNN. Use it on any text from a file before showing it.
std::string printable(std::string_view text);
// As printable, but keeps newlines and tabs.
std::string printable_lines(std::string_view text);
// Formats rows of cells as aligned columns separated by two spaces, one line of text per row. Cells are made printable.
std::string text_table(const std::vector<std::vector<std::string>>& lines);

}  // namespace bitgrad
