#include "bitgrad/base/text.h"

#include <algorithm>
#include <cstdint>

namespace bitgrad {
namespace {

// Bytes of the character at the start of `text`, or 0 if it is invalid or a control character.
size_t shown_bytes(std::string_view text) {
  const size_t bytes = utf8_bytes(text);
  if (bytes == 0) return 0;
  const auto first = static_cast<uint8_t>(text[0]);
  const bool control =
      bytes == 1 ? first < 0x20 || first == 0x7F : first == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0;
  return control ? 0 : bytes;
}

std::string shown(std::string_view text, std::string_view keep) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto byte = static_cast<uint8_t>(text[0]);
    const size_t bytes = keep.find(text[0]) != std::string_view::npos ? 1 : shown_bytes(text);
    if (bytes == 0)
      out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15u]);
    else
      out.append(text.substr(0, bytes));
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace

size_t utf8_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  uint8_t min = 0x80, max = 0xBF;  // range of the second byte
  if (first == 0xE0) min = 0xA0;
  if (first == 0xED) max = 0x9F;
  if (first == 0xF0) min = 0x90;
  if (first == 0xF4) max = 0x8F;
  if (byte(1) < min || byte(1) > max) return 0;
  for (size_t i = 2; i < bytes; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return bytes;
}

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = utf8_bytes(text);
    if (bytes == 0 || static_cast<uint8_t>(text[0]) < 0x20 || text[0] == 0x7F) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = 2 + static_cast<int>(name.size()) / 3;
  for (const std::string& k : known) {
    const int distance = edit_distance(name, k);
    if (distance < best_distance) {
      best = k;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  std::string out = "unknown " + std::string(what) + " '" + printable(name) + "'.";
  const std::string near = nearest_name(name, known);
  if (!near.empty()) out += " Did you mean '" + near + "'?";
  out += " Known:";
  for (size_t i = 0; i < known.size(); ++i) out += (i ? ", " : " ") + known[i];
  return out;
}

std::string printable(std::string_view text) { return shown(text, ""); }
std::string printable_lines(std::string_view text) { return shown(text, "\n\t"); }

std::string text_table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> lines = cells;
  for (auto& line : lines)
    for (std::string& cell : line) cell = printable(cell);
  std::vector<size_t> width;
  for (const auto& line : lines) {
    width.resize(std::max(width.size(), line.size()), 0);
    for (size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string table;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += line[i] + std::string(width[i] - line[i].size() + 2, ' ');
    table += text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
  }
  return table;
}

}  // namespace bitgrad
