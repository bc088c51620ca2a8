// Words of configurations and files that have another name now.
#pragma once

#include <string_view>
#include <vector>

namespace bitgrad::detail {

// The word that `key` uses now for `word`, or `word` itself. The list is old_words.inc.
std::string_view current_word(std::string_view key, std::string_view word);
// Those that `key` still accepts.
std::vector<std::string_view> old_words(std::string_view key);

}  // namespace bitgrad::detail
