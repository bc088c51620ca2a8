// Globs on layer paths: * matches any characters, ? one, [abc] [a-c] one of a set, [!a] one not in the set. A glob must
// match the whole path.
#pragma once

#include <string_view>

namespace bitgrad::detail {

// Throws Error for a set without closing bracket.
void check_glob(std::string_view glob);
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace bitgrad::detail
