// Whether the first line of a table holds the names of its columns.
#include <algorithm>
#include <unordered_set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/csv_table.h"

namespace bitgrad::data {
namespace {

// Whether fields are `from`, `from` + 1, ...
bool counts_up(std::span<const std::string_view> fields, size_t from) {
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i] != std::to_string(from + i)) return false;
  return true;
}

bool may_be_name(std::string_view field) {
  const auto c = static_cast<unsigned char>(field.empty() ? '0' : field[0]);
  return c >= 0x80 || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether the column holds numbers alone, and one at least.
bool numbers_below(std::span<const CsvRow> below, size_t column, const CsvForm& form) {
  bool any = false;
  for (const CsvRow& row : below) {
    if (column >= row.size() || is_missing(row[column], form.missing)) continue;
    if (!is_number(row[column], form.decimal)) return false;
    any = true;
  }
  return any;
}

}  // namespace

CsvHead guess_head(const CsvRow& first, std::span<const CsvRow> below, const CsvForm& form) {
  if (form.head != "auto") return {form.head == "yes", concat("header: ", form.head)};
  const std::unordered_set<std::string_view> known(form.known.begin(), form.known.end());
  for (const std::string_view field : first)
    if (!field.empty() && known.count(field) > 0)
      return {true, concat("it has the name '", printable(field), "' that the model knows")};
  const auto numeric = [&](std::string_view field) { return is_number(field, form.decimal); };
  const bool index = first.front().empty();  // pandas writes no name above the numbers of rows
  const std::span<const std::string_view> fields = std::span(first).subspan(index ? 1 : 0);
  if (std::none_of(first.begin(), first.end(), numeric)) {
    bool numbers = false;
    for (size_t i = 0; i < first.size(); ++i) numbers = numbers || numbers_below(below, i, form);
    return {true, numbers ? "it has no number" : "it has no number, and neither have the lines below", !numbers};
  }
  if (counts_up(fields, 0) && fields.size() >= (index ? 1u : 3u))
    return {true, "it counts up from 0, as pandas names columns without names", true};
  for (size_t i = 0; i < first.size(); ++i)
    if (may_be_name(first[i]) && !numeric(first[i]) && !is_missing(first[i], form.missing) &&
        numbers_below(below, i, form))
      return {true, concat("'", printable(first[i].substr(0, 40)), "' stands above numbers"), true};
  if (fields.size() > 1 && (counts_up(fields, 0) || counts_up(fields, 1)))
    return {false, "it has numbers, which count up", true};
  return {false, "it has numbers"};
}

std::string head_text(const CsvHead& head) {
  return concat("the first line ", head.names ? "holds the names of the columns" : "is a sample", ": ", head.why);
}

}  // namespace bitgrad::data
