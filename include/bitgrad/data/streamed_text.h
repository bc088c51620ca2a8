// The text of ids that come one by one: only what later ids cannot change is given out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/tokenizer.h"

namespace bitgrad {

class StreamedText {
 public:
  // The text ends before the first of the `stop` texts that appears; one may begin in one id and end in another. Throws
  // Error for an empty one. The tokenizer must live as long.
  explicit StreamedText(const Tokenizer& tokenizer, std::vector<std::string> stop = {});

  // What the id makes certain: whole characters of UTF-8, without the begin of a stop text. Marks
  // (Tokenizer::special) stand for nothing. Bytes that are no UTF-8 become U+FFFD, one for each run of bytes that
  // begins a character and does not end it (Unicode 15, section 3.9). Throws Error for an id out of range. Nothing
  // after it has stopped.
  std::string add(int32_t id);
  // A stop text has appeared.
  bool stopped() const { return stopped_; }
  // What was held back, when no id follows.
  std::string finish();

 private:
  std::string take(size_t end, bool last);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stop_;
  std::string held_;  // bytes that were not given out
  bool stopped_ = false;
};

}  // namespace bitgrad
