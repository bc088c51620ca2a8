// Decimal numbers as written in a configuration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bitgrad::config {

inline constexpr int64_t kMostOfAQuantity = 1'000'000'000'000;

enum class NumberResult : uint8_t { kOk, kNotANumber, kTooLarge };

// [+-] digits, no leading zeros.
NumberResult parse_whole(std::string_view text, int64_t& value);
// [+-] digits [. digits] [e [+-] digits], digits on at least one side of the point, no leading zeros. kTooLarge: not a
// finite double, or so small that it would become 0.
NumberResult parse_decimal(std::string_view text, double& value);
// The shortest text that reads back as the same double.
std::string number_text(double value);
std::string number_text(float value);             // the same float
std::string_view trimmed(std::string_view text);  // without surrounding blanks
// 1 to 64 of [A-Za-z0-9_.-], not starting with '.' or '-': safe as a file name.
bool is_name(std::string_view text);

}  // namespace bitgrad::config
