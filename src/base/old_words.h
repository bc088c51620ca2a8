// Accepted former names of words in configurations and files.
#pragma once

#include <string_view>
#include <vector>

namespace bitgrad::detail {

// The current name of `word` as a value of `key`, or `word` itself. The list is old_words.inc.
std::string_view current_word(std::string_view key, std::string_view word);
// The former names that `key` still accepts.
std::vector<std::string_view> old_words(std::string_view key);

}  // namespace bitgrad::detail
