// Incremental text of ids that arrive one by one: returns only text that later ids cannot change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/tokenizer.h"

namespace bitgrad {

class StreamedText {
 public:
  // The text ends before the first occurrence of any of the `stop` texts, which may span several ids. Throws Error if
  // one is empty. The tokenizer must outlive this object.
  explicit StreamedText(const Tokenizer& tokenizer, std::vector<std::string> stop = {});

  // Returns the text that the id makes final: whole UTF-8 characters, without a suffix that may begin a stop text.
  // Special ids (Tokenizer::special) have no text. Invalid UTF-8 becomes U+FFFD, one for each maximal run of bytes that
  // begins a character without completing it (Unicode 15, section 3.9). Returns nothing after a stop. Throws Error for
  // an id out of range.
  std::string add(int32_t id);
  // Whether a stop text has appeared.
  bool stopped() const { return stopped_; }
  // Returns the text held back so far. Call when no more ids follow.
  std::string finish();

 private:
  std::string take(size_t end, bool last);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stop_;
  std::string held_;  // bytes not yet returned
  bool stopped_ = false;
};

}  // namespace bitgrad
