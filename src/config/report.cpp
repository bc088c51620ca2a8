// Renders findings: `file:line:col: error: message`, the source line and a caret line.
#include <algorithm>
#include <tuple>

#include "bitgrad/base/error.h"
#include "config/source.h"

namespace bitgrad::config {
namespace {

constexpr size_t kWindow = 150;  // bytes shown of a source line

bool starts_character(char c) { return (c & 0xC0) != 0x80; }

// Appends the characters of `s`, with control bytes replaced; returns their number.
size_t append_printable(std::string_view s, std::string& out) {
  size_t count = 0;
  for (char c : s) {
    const uint8_t byte = static_cast<uint8_t>(c);
    out += c == '\t' ? ' ' : (byte < 0x20 || byte == 0x7F ? '?' : c);
    if (starts_character(c)) ++count;
  }
  return count;
}

// The part of a line around byte `at`, and the caret line below it. Long lines are cut at both ends.
std::pair<std::string, std::string> excerpt(std::string_view line, size_t at, size_t length) {
  at = std::min(at, line.size());
  size_t begin = line.size() <= kWindow || at < kWindow / 2 ? 0 : at - kWindow / 2;
  size_t end = std::min(line.size(), begin + kWindow);
  while (begin < at && !starts_character(line[begin])) ++begin;
  while (end > at && end < line.size() && !starts_character(line[end])) --end;
  std::string text = begin > 0 ? "..." : "";
  const size_t before = text.size() + append_printable(line.substr(begin, at - begin), text);
  const size_t after = append_printable(line.substr(at, end - at), text);
  if (end < line.size()) text += "...";
  return {text, std::string(before, ' ') + '^' +
                    std::string(std::clamp<size_t>(length, 1, std::max<size_t>(after, 1)) - 1, '~')};
}

}  // namespace

bool Report::has_error(SourceMark mark) const {
  return std::any_of(findings_.begin(), findings_.end(), [&](const Finding& finding) {
    const SourceMark& at = finding.diagnostic.mark;
    return at.argument == mark.argument && at.line == mark.line && at.col == mark.col;
  });
}

void Report::error(SourceMark mark, std::string message, size_t length) {
  if (!where_.empty()) {
    if (has_error(mark)) return;  // a block used several times reports it once
    message += concat(" (in ", where_, ')');
  }
  findings_.push_back({{mark, std::move(message)}, length});
}

std::string Report::render(const Finding& finding) const {
  const SourceMark& mark = finding.diagnostic.mark;
  const SourceText& text_of = source(mark.argument);
  const auto [text, carets] = excerpt(text_of.line(mark.line - 1), text_of.byte_column(mark), finding.length);
  TextWriter out;
  std::string margin;
  if (mark.argument <= 0) {
    out << (mark.argument == kPreset ? preset_.value().first : name_) << ':' << mark.line << ':' << mark.col;
    margin = concat("  ", mark.line);
  } else {
    out << "command line, argument " << mark.argument;
    margin = "  ";
  }
  out << ": error: " << finding.diagnostic.message << '\n';
  out << margin << " | " << text << '\n' << std::string(margin.size(), ' ') << " | " << carets << '\n';
  return out.str();
}

std::string Report::place(SourceMark mark) const {
  const std::string from = mark.argument > 0          ? concat("argument ", mark.argument, ", ")
                           : mark.argument == kPreset ? preset_.value().first + ':'
                                                      : "";
  return concat(from, mark.line, ':', mark.col);
}

void Report::warning(SourceMark mark, std::string message) {
  if (mark.argument == kPreset) return;
  const std::string where = mark.argument > 0 ? concat("command line, argument ", mark.argument)
                                              : concat(name_, ':', mark.line, ':', mark.col);
  std::string text = concat(where, ": ", std::move(message));
  if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) warnings_.push_back(std::move(text));
}

void Report::throw_if_any() {
  if (findings_.empty()) return;
  std::stable_sort(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) {
    const SourceMark &x = a.diagnostic.mark, &y = b.diagnostic.mark;
    return std::tie(x.argument, x.line, x.col) < std::tie(y.argument, y.line, y.col);
  });
  std::string report;
  std::vector<ConfigDiagnostic> diagnostics;
  for (size_t i = 0; i < findings_.size(); ++i) {
    if (i < kMaxReported) report += render(findings_[i]);
    diagnostics.push_back(findings_[i].diagnostic);
  }
  if (findings_.size() > kMaxReported) report += concat("and ", findings_.size() - kMaxReported, " more.\n");
  report += concat(findings_.size(), findings_.size() == 1 ? " error" : " errors", ". Nothing was started.");
  throw ConfigError(report, std::move(diagnostics));
}

}  // namespace bitgrad::config
