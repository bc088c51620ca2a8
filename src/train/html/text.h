// Texts of a page. What comes from a file goes through escaped().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"

namespace bitgrad::html {

// For content and attributes: & < > " ' as entities, control characters but line ends as \xNN.
std::string escaped(std::string_view text);
// Four digits: "0.0664", "97.56", "1.2e-05", "12 340" stays "12340".
std::string number_text(double x);
// With blanks between thousands: "58 312 536".
std::string count_text(int64_t x);
// Units of 1000: "812 B", "58.3 MB".
std::string bytes_text(double bytes);
// "4.2 s", "3 min 20 s", "2 h 5 min".
std::string seconds_text(double seconds);
// A number of a tick: "20k", "1.5M", "0.02", "1e-6". `step` between ticks says how many digits.
std::string tick_text(double x, double step);
// number_text of a number, a dash of anything else.
std::string number_or_dash(const Json& object, std::string_view name);

// A table: head, rows of cells that are HTML already. Columns of `wide` are left out on narrow screens.
struct Table {
  std::vector<std::string> head = {};
  std::vector<std::vector<std::string>> rows = {};
  std::vector<size_t> wide = {};
  bool narrow = false;  // not over the whole page
  size_t texts = 1;     // the first so many columns are texts, the others numbers
};
std::string table_html(const Table& table);
std::string section(std::string_view title, const std::string& content);
// Why a section is empty.
std::string note(const std::string& html);

}  // namespace bitgrad::html
