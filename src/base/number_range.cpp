#include "bitgrad/base/number_range.h"

#include <charconv>

#include "bitgrad/base/error.h"

namespace bitgrad {

NumberRange parse_number_range(std::string_view text) {
  const size_t comma = text.find(", ");
  require(text.size() >= 6 && comma != std::string_view::npos && (text.front() == '(' || text.front() == '[') &&
              (text.back() == ')' || text.back() == ']'),
          "range", "got '", text, "', expected two numbers such as [1, 64] or (0, 1]");
  NumberRange range{0, 0, text.front() == '(', text.back() == ')'};
  const auto read = [&](std::string_view part, double& to) {
    const auto result = std::from_chars(part.data(), part.data() + part.size(), to);
    require(result.ec == std::errc() && result.ptr == part.data() + part.size(), "range", "got '", text,
            "', expected two numbers such as [1, 64] or (0, 1]");
  };
  read(text.substr(1, comma - 1), range.lo);
  read(text.substr(comma + 2, text.size() - comma - 3), range.hi);
  return range;
}

}  // namespace bitgrad
