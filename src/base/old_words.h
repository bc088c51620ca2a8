// Words of configurations and files that have another name now.
#pragma once

#include <string_view>

namespace bitgrad::detail {

// The word that `key` uses now for `word`, or `word` itself. The list is old_words.inc.
std::string_view current_word(std::string_view key, std::string_view word);

}  // namespace bitgrad::detail
