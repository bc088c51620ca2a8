#include "report/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::html {
namespace {

std::string formatted(const char* form, int digits, double x) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), form, digits, x);
  return text.data();
}

// 12340 -> {12.34, "k"}; values below 10000 are unchanged.
std::pair<double, std::string> thousands(double x) {
  const double a = std::abs(x);
  if (a >= 1e9) return {x / 1e9, "G"};
  if (a >= 1e6) return {x / 1e6, "M"};
  if (a >= 1e4) return {x / 1e3, "k"};
  return {x, ""};
}

}  // namespace

std::string escaped(std::string_view text) {
  constexpr std::pair<char, const char*> kEntities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string out;
  for (const char c : printable_lines(text)) {
    const auto* const entity =
        std::find_if(std::begin(kEntities), std::end(kEntities), [&](const auto& e) { return e.first == c; });
    out += entity == std::end(kEntities) ? std::string(1, c) : entity->second;
  }
  return out;
}

std::string number_text(double x) {
  if (!std::isfinite(x)) return std::isnan(x) ? "not a number" : x > 0 ? "inf" : "-inf";
  if (std::abs(x) >= 1e4 && std::abs(x) < 1e15) return count_text(std::llround(x));
  return formatted("%.*g", 4, x);
}

std::string count_text(int64_t x) {
  std::string digits = concat(x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x)), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += "\u202f";
    out += digits[i];
  }
  return x < 0 ? "-" + out : out;
}

std::string whole_text(double x) { return std::abs(x) < 1e15 ? count_text(static_cast<int64_t>(x)) : number_text(x); }

std::string bytes_text(double bytes) {
  const char* const units[] = {" B", " kB", " MB", " GB", " TB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(units); ++unit) bytes /= 1000;
  return formatted("%.*f", unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, bytes) + units[unit];
}

std::string seconds_text(double seconds) {
  if (seconds < 60) return formatted("%.*g", 3, seconds) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return concat(whole / 60, " min ", whole % 60, " s");
  return concat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string tick_text(double x, double step) {
  if (x == 0) return "0";
  if (std::abs(x) < 1e-3) return formatted("%.*g", 2, x);
  const auto [scaled, unit] = thousands(x);
  const double scaled_step = step * scaled / x;
  int digits = 0;
  for (double s = scaled_step; digits < 4 && std::abs(s - std::round(s)) > 1e-6 * std::max(1.0, std::abs(s)); s *= 10)
    ++digits;
  return formatted("%.*f", digits, scaled) + unit;
}

std::string number_or_dash(const Json& object, std::string_view name) {
  if (!object.is_object() || !object.contains(name)) return "&ndash;";
  const Json& x = object[name];
  return x.is_number() ? number_text(x.get<double>()) : x.is_string() ? escaped(x.text()) : "&ndash;";
}

std::string table_html(const Table& table) {
  const auto cell = [&](const char* tag, size_t column, const std::string& content) {
    std::string kinds = column < table.texts ? "" : "n";
    if (std::find(table.wide.begin(), table.wide.end(), column) != table.wide.end())
      kinds += kinds.empty() ? "w" : " w";
    return concat('<', tag, kinds.empty() ? "" : " class=\"" + kinds + '"', '>', content, "</", tag, '>');
  };
  std::string out = concat("<div class=\"scroll", table.narrow ? " narrow" : "", "\"><table><thead><tr>");
  for (size_t i = 0; i < table.head.size(); ++i) out += cell("th", i, table.head[i]);
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) out += cell("td", i, row[i]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string section(std::string_view title, const std::string& content) {
  return concat("<section><h2>", title, "</h2>\n", content, "</section>\n");
}

std::string note(const std::string& html) { return "<p class=\"note\">" + html + "</p>\n"; }

}  // namespace bitgrad::html
