// Texts of a page. Everything from a file must pass through escaped().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"

namespace bitgrad::html {

// For content and attributes: & < > " ' become entities, control characters except line ends \xNN.
std::string escaped(std::string_view text);
// Four digits: "0.0664", "97.56", "1.2e-05"; from 10000 on a whole number, as count_text.
std::string number_text(double x);
// With spaces between thousands: "58 312 536".
std::string count_text(int64_t x);
std::string whole_text(double x);  // a count from a file, which may be any number
// In units of 1000: "812 B", "58.3 MB".
std::string bytes_text(double bytes);
// "4.2 s", "3 min 20 s", "2 h 5 min".
std::string seconds_text(double seconds);
// Label of a tick: "20k", "1.5M", "0.02", "1e-6". `step` between ticks determines the digits.
std::string tick_text(double x, double step);
// number_text of a number, otherwise a dash.
std::string number_or_dash(const Json& object, std::string_view name);

// A table: head, and rows of cells that are already HTML. Columns in `wide` are hidden on narrow screens.
struct Table {
  std::vector<std::string> head = {};
  std::vector<std::vector<std::string>> rows = {};
  std::vector<size_t> wide = {};
  bool narrow = false;  // narrower than the page
  size_t texts = 1;     // number of leading text columns; the others are numbers
};
std::string table_html(const Table& table);
std::string section(std::string_view title, const std::string& content);
// Says why a section is empty.
std::string note(const std::string& html);

}  // namespace bitgrad::html
