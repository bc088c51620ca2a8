// Texts that are one token wherever they occur, such as <|endoftext|>: they are found before a text is split.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::data {

struct AddedToken {
  int32_t id = 0;
  std::string text = {};
  bool left_strip = false, right_strip = false;  // takes the white space before, behind it
};

class AddedTokens {
 public:
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }
  // f(part, its id or -1) for tokens and what lies between them, from front to back; no part is empty. Of tokens that
  // begin at one place the longest counts.
  void split(std::string_view text, const std::function<void(std::string_view part, int32_t id)>& f) const;

 private:
  const AddedToken* at(std::string_view text) const;
  std::vector<AddedToken> tokens_;
  std::array<std::vector<size_t>, 256> by_byte_;  // first byte: tokens, the longest first
};

}  // namespace bitgrad::data
