#include "base/old_words.h"

namespace bitgrad::detail {
namespace {

struct OldWord {
  std::string_view key, old, now;
};

constexpr OldWord kOldWords[] = {
#define BITGRAD_OLD_WORD(key, old, now) {key, old, now},
#include "base/old_words.inc"
#undef BITGRAD_OLD_WORD
};

}  // namespace

std::string_view current_word(std::string_view key, std::string_view word) {
  for (const OldWord& known : kOldWords)
    if (known.key == key && known.old == word) return known.now;
  return word;
}

std::vector<std::string_view> old_words(std::string_view key) {
  std::vector<std::string_view> words;
  for (const OldWord& known : kOldWords)
    if (known.key == key) words.push_back(known.old);
  return words;
}

}  // namespace bitgrad::detail
