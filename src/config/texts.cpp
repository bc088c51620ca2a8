#include "config/texts.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"

namespace bitgrad::config {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"B", 1},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"KiB", 1024},
                           {"MiB", 1024.0 * 1024},
                           {"GiB", 1024.0 * 1024 * 1024}};

}  // namespace

bool is_name(std::string_view text) {
  const auto ok = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           c == '-';
  };
  return !text.empty() && text.size() <= 64 && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), ok);
}

NumberResult parse_bytes(std::string_view text, int64_t& bytes) {
  const size_t begin = std::min(text.find_first_not_of("+-.0123456789"), text.size());
  std::string_view number = text.substr(0, begin), name = text.substr(begin);
  if (name.empty()) return parse_whole(number, bytes);
  if (name.starts_with(' ')) name.remove_prefix(1);
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& u) { return u.name == name; });
  double value = 0;
  if (unit == std::end(kUnits)) return NumberResult::kNotANumber;
  const NumberResult result = parse_decimal(number, value);
  if (result != NumberResult::kOk) return result;
  constexpr double kMost = 9007199254740992.0;  // integers are exact in double up to here
  value *= unit->bytes;
  if (std::fabs(value) > kMost) return NumberResult::kTooLarge;
  // 0.1 KB is 100 bytes, although 0.1 has no exact double.
  const double full = std::round(value);
  if (std::fabs(value - full) > 1e-9 * std::fabs(value)) return NumberResult::kNotANumber;
  bytes = static_cast<int64_t>(full);
  return NumberResult::kOk;
}

std::string glob_fault(std::string_view glob) {
  for (size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] == ']') return "']' without '[' before it";
    if (glob[i] != '[') continue;
    const size_t first = i + 1 + (i + 1 < glob.size() && glob[i + 1] == '!');
    const size_t close = glob.find(']', first);
    if (close == std::string_view::npos) return "'[' is not closed";
    if (close == first) return "the set of '[]' is empty";
    const std::string_view set = glob.substr(first, close - first);
    if (set.find('[') != std::string_view::npos) return "'[' inside '[...]'";
    for (size_t k = 1; k + 1 < set.size(); ++k)
      if (set[k] == '-' && set[k - 1] > set[k + 1])
        return concat("the range '", set.substr(k - 1, 3), "' is descending");
    i = close;
  }
  return {};
}

}  // namespace bitgrad::config
