#include "data/tokenizer_text.h"

#include <algorithm>

#include "bitgrad/base/text.h"

namespace bitgrad::data {
namespace {

constexpr size_t first_byte(std::string_view text) { return static_cast<uint8_t>(text[0]); }

// Length in bytes of the Unicode White_Space character at the start of `text`; 0 if there is none.
size_t space_bytes(std::string_view text) {
  const size_t n = utf8_bytes(text);
  if (n == 1) return text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r') ? 1 : 0;
  const std::string_view c = text.substr(0, n);
  if (n == 2) return c == "\xc2\x85" || c == "\xc2\xa0" ? 2 : 0;
  if (n != 3) return 0;
  const bool other = c == "\xe1\x9a\x80" || c == "\xe2\x80\xa8" || c == "\xe2\x80\xa9" || c == "\xe2\x80\xaf" ||
                     c == "\xe2\x81\x9f" || c == "\xe3\x80\x80";
  return other || (c >= "\xe2\x80\x80" && c <= "\xe2\x80\x8a") ? 3 : 0;
}

size_t spaces_behind(std::string_view text) {
  size_t at = 0;
  for (size_t n; at < text.size() && (n = space_bytes(text.substr(at))) > 0;) at += n;
  return at;
}

// Offset of the trailing white space of `text`.
size_t spaces_before(std::string_view text) {
  size_t end = text.size();
  for (bool more = true; more && end > 0;) {
    more = false;
    for (size_t n = 1; n <= std::min<size_t>(3, end) && !more; ++n)
      if (space_bytes(text.substr(end - n, n)) == n) {
        end -= n;
        more = true;
      }
  }
  return end;
}

bool separates(char c) { return c >= '\x1c' && c <= '\x1f'; }  // white space of Python alone

}  // namespace

std::string_view without_outer_spaces(std::string_view text) {
  for (size_t before = text.size() + 1; before != text.size();) {
    before = text.size();
    text.remove_prefix(spaces_behind(text));
    text = text.substr(0, spaces_before(text));
    if (!text.empty() && separates(text.front())) text.remove_prefix(1);
    if (!text.empty() && separates(text.back())) text.remove_suffix(1);
  }
  return text;
}

void AddedTokens::add(AddedToken token) {
  std::vector<size_t>& list = by_byte_[first_byte(token.text)];
  const auto longer = [&](size_t i) { return tokens_[i].text.size() >= token.text.size(); };
  list.insert(std::partition_point(list.begin(), list.end(), longer), tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::at(std::string_view text, const Takes& takes) const {
  for (const size_t i : by_byte_[first_byte(text)])
    if (text.starts_with(tokens_[i].text) && (!takes || takes(tokens_[i].id))) return &tokens_[i];
  return nullptr;
}

void AddedTokens::split(std::string_view text, const Part& f) const { split_those(text, nullptr, f); }

void AddedTokens::split_those(std::string_view text, const Takes& takes, const Part& f) const {
  size_t done = 0;
  for (size_t i = 0; i < text.size() && !tokens_.empty();) {
    const AddedToken* const token = at(text.substr(i), takes);
    if (token == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + token->text.size();
    i = end;
    if (token->left_strip) begin = std::max(done, spaces_before(text.substr(0, begin)));
    if (token->right_strip) end += spaces_behind(text.substr(end));
    if (begin > done) f(text.substr(done, begin - done), -1);
    f(text.substr(begin, end - begin), token->id);
    done = end;
    i = std::max(i, done);
  }
  if (text.size() > done) f(text.substr(done), -1);
}

}  // namespace bitgrad::data
