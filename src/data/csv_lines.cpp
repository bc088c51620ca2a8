#include "data/csv_table.h"

#include <algorithm>
#include <cstdint>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::data {
namespace {

constexpr size_t kCompared = 20;  // lines

std::vector<std::string_view> first_lines(std::string_view text) {
  std::vector<std::string_view> out;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // UTF-8 byte order mark
  while (!text.empty() && out.size() < kCompared) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (const std::string_view line = trimmed_field(text.substr(0, end)); !line.empty()) out.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

size_t fields_of(std::string_view line, char mark) {
  if (mark != kBlankSeparator) return 1 + static_cast<size_t>(std::count(line.begin(), line.end(), mark));
  size_t count = 0;
  for (size_t i = 0; i < line.size(); ++i)
    count += line[i] != ' ' && line[i] != '\t' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t') ? 1 : 0;
  return count;
}

// The fields that the mark makes of each line; 0: not as many of each.
size_t even_fields(const std::vector<std::string_view>& lines, char mark) {
  const size_t count = fields_of(lines[0], mark);
  const auto same = [&](std::string_view line) { return fields_of(line, mark) == count; };
  return std::all_of(lines.begin(), lines.end(), same) ? count : 0;
}

// Whether blanks part it, and a part is a number.
bool has_number(std::string_view line) {
  constexpr std::string_view kBlank = " \t";
  size_t parts = 0, numbers = 0;
  for (size_t at = 0; (at = line.find_first_not_of(kBlank, at)) != std::string_view::npos; ++parts) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    numbers += is_number(line.substr(at, end - at)) ? 1 : 0;
    at = end;
  }
  return parts > 1 && numbers > 0;
}

bool is_comment(std::string_view line) {
  for (const std::string_view mark : {"#", "%", "//", "@"})
    if (line.starts_with(mark)) return true;
  return false;
}

}  // namespace

const CsvSeparator& likely_separator(std::string_view text) {
  const std::vector<std::string_view> lines = first_lines(text);
  const std::string_view first = lines.empty() ? std::string_view() : lines[0];
  const auto has = [&](char mark) { return first.find(mark) != std::string_view::npos; };
  const char declared = declared_separator(first);
  const auto fits = [&](char mark) {
    if (declared != '\0') return mark == declared;
    if (mark == '|') return has(mark) && even_fields(lines, mark) > 1;
    if (mark != kBlankSeparator) return has(mark);
    return has_number(first) ||
           (!lines.empty() && even_fields(lines, mark) > 1 && std::any_of(lines.begin(), lines.end(), has_number));
  };
  // Commas may be decimal marks where others separate.
  for (const char mark : {';', '\t', '|', ',', kBlankSeparator})
    for (const CsvSeparator& known : kCsvSeparators)
      if (known.mark == mark && fits(mark)) return known;
  return kCsvSeparators[0];
}

void check_separator(const std::string& path, std::string_view text, const CsvRow& first, const CsvForm& form) {
  if (first.size() != 1 || is_comment(first[0])) return;
  const auto refuse = [&](std::string_view what, std::string_view way) {
    fail_with(ErrorCode::kData, kCsv, printable(path), ": the first line is one field with ", what, ": '",
              printable(first[0].substr(0, 60)), "'. If these separate fields, ",
              form.fixed ? concat("write the file with the separator of the training table: '",
                                  printable({&form.separator, 1}), '\'')
                         : std::string(way),
              '.');
  };
  const CsvSeparator& likely = likely_separator(text);
  const bool there = likely.mark == kBlankSeparator || first[0].find(likely.mark) != std::string_view::npos;
  const bool one_comma = likely.mark == ',' && std::count(first[0].begin(), first[0].end(), ',') == 1;
  if (likely.mark != form.separator && there && !one_comma)
    refuse(concat(likely.plural, has_number(first[0]) && likely.mark == kBlankSeparator ? " between numbers" : ""),
           concat("set separator: ", likely.name));
  const std::vector<std::string_view> lines = first_lines(text);
  const bool time = !first[0].empty() && first[0][0] >= '0' && first[0][0] <= '9';
  for (const char other : {'^', ':', '~', '\x01', '\x1E', '\x1F'}) {
    const size_t count = other == ':' && time ? 0 : even_fields(lines, other);
    const std::string mark = printable({&other, 1});
    if (count > 1)
      refuse(concat("'", mark, "' (", count, " fields in each line)"),
             concat("write it with commas, in Python with pandas: read_csv(FILE, sep='", mark,
                    "').to_csv(NAME, index=False)"));
  }
}

void refuse_length(const std::string& path, CsvRows& rows, const CsvRow& first, const CsvRow& row, bool second,
                   const CsvForm& form) {
  const int64_t line = rows.line();
  const size_t got = row.size(), expected = first.size();
  const std::string head(first[0]);
  const std::string_view begin = row[0];
  std::string why;
  if (second && is_comment(head)) {
    why = " If the first line is a comment, remove it: the names of the columns are expected there.";
  } else if (is_comment(begin)) {
    why = " If it is a comment, remove it.";
  } else if (second) {
    CsvRow next;
    bool alike = true;
    for (size_t i = 0; alike && i < kCompared && rows.next(next); ++i) alike = next.size() == got;
    if (alike && got == expected + 1)
      why =
          " If each line begins with a name or a number of the row, as R writes them, write the table without them "
          "(row.names=FALSE), or put a name for them in front of the first line.";
    else if (alike && expected == 1)
      why = " If the first line is a title, remove it: the names of the columns are expected there.";
  } else if (got < expected && row.size() == 1) {
    why = " If it is a note or the end of the table, remove it.";
  }
  if (why.empty() && got > expected && form.separator != kBlankSeparator)
    why = concat(" A field that holds '", form.separator, "' must be in double quotes",
                 form.separator == ',' ? "; numbers with decimal commas need another field separator." : ".");
  fail_with(ErrorCode::kData, kCsv, printable(path), ':', line, ": got ", got, " fields, expected ", expected,
            " as in the first line.", why);
}

}  // namespace bitgrad::data
