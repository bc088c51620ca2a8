// Added tokens: texts that are a single token wherever they occur, such as <|endoftext|>. They are matched before a
// text is split into words.
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
  bool left_strip = false, right_strip = false;  // also consume the white space before or after the token
};

class AddedTokens {
 public:
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }
  // Calls f(part, id or -1) for tokens and the text between them, front to back; no part is empty. If several tokens
  // match at the same position, the longest wins.
  void split(std::string_view text, const std::function<void(std::string_view part, int32_t id)>& f) const;

 private:
  const AddedToken* at(std::string_view text) const;
  std::vector<AddedToken> tokens_;
  std::array<std::vector<size_t>, 256> by_byte_;  // first byte: token indices, longest first
};

}  // namespace bitgrad::data
