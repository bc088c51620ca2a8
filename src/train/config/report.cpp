// Renders findings: `file:line:col: error: message`, the source line and a caret line.
#include <algorithm>
#include <sstream>
#include <tuple>

#include "train/config/source.h"

namespace bitgrad::config {
namespace {

constexpr size_t kWindow = 150;  // characters of a source line that a report shows

std::vector<std::string_view> characters(std::string_view s) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < s.size();) {
    size_t end = i + 1;
    while (end < s.size() && (s[end] & 0xC0) == 0x80) ++end;
    out.push_back(s.substr(i, end - i));
    i = end;
  }
  return out;
}

// The part of a line around column `col` (from 1), and the caret line below it.
std::pair<std::string, std::string> excerpt(std::string_view line, int col, size_t length) {
  const std::vector<std::string_view> all = characters(line);
  const size_t at = std::min(static_cast<size_t>(col - 1), all.size());
  const size_t begin = all.size() <= kWindow || at < kWindow / 2 ? 0 : at - kWindow / 2;
  const size_t end = std::min(all.size(), begin + kWindow);
  std::string text = begin > 0 ? "..." : "", carets = begin > 0 ? "   " : "";
  for (size_t i = begin; i < end; ++i) {
    const uint8_t c = static_cast<uint8_t>(all[i][0]);
    const bool printable = c >= 0x20 && c != 0x7F && (c < 0x80 || all[i].size() > 1);
    text += printable ? all[i] : (c == '\t' ? " " : "?");
    if (i < at) carets += ' ';
  }
  if (end < all.size()) text += "...";
  const size_t room = end > at ? end - at : 1;
  carets += '^' + std::string(std::min(std::max<size_t>(length, 1), room) - 1, '~');
  return {text, carets};
}

}  // namespace

void Report::error(SourceMark mark, std::string message, size_t length) {
  findings_.push_back({{mark, std::move(message)}, length});
}

std::string Report::render(const Finding& finding) const {
  const SourceMark& mark = finding.diagnostic.mark;
  const auto [text, carets] = excerpt(source(mark.argument).line(mark.line - 1), mark.col, finding.length);
  std::ostringstream out;
  std::string margin;
  if (mark.argument == 0) {
    out << name_ << ':' << mark.line << ':' << mark.col;
    margin = concat("  ", mark.line);
  } else {
    out << "command line, argument " << mark.argument;
    margin = "  ";
  }
  out << ": error: " << finding.diagnostic.message << '\n';
  out << margin << " | " << text << '\n' << std::string(margin.size(), ' ') << " | " << carets << '\n';
  return out.str();
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
