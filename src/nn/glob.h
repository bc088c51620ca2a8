// Globs on layer paths: * any characters, ? one, [abc] [a-c] one of a set, [!a] one that is not. The whole path
// matches.
#pragma once

#include <string_view>

namespace bitgrad::detail {

// Throws Error for a set without its closing bracket.
void check_glob(std::string_view glob);
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace bitgrad::detail
