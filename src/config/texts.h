// Values with a textual form of their own: names, sizes in bytes, globs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bitgrad/base/text.h"

namespace bitgrad::config {

inline constexpr int64_t kMostOfAQuantity = 1'000'000'000'000;

// 1 to 64 of [A-Za-z0-9_.-], not starting with '.' or '-': safe as a file name.
bool is_name(std::string_view text);

// "60000", "60 KB", "1.5 MB", "64 KiB": a whole number, or a number and a unit, separated by at most one blank. KB, MB,
// GB are powers of 1000, KiB, MiB, GiB of 1024. The number of bytes must be whole: "0.3 KiB" is not a size.
NumberResult parse_bytes(std::string_view text, int64_t& bytes);

// What is wrong with the form of a glob (* ? [abc] [a-c] [!a], nn/prepare.h); empty if nothing is.
std::string glob_fault(std::string_view glob);

}  // namespace bitgrad::config
