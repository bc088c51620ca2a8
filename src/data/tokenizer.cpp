#include "bitgrad/data/tokenizer.h"

#include <algorithm>

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/key.h"
#include "bitgrad/base/text.h"
#include "data/tokenizers.h"

namespace bitgrad {

namespace {

using namespace data;

detail::KindList<TokenizerKind>& tokenizers() {
  static detail::KindList<TokenizerKind> all({
#define BITGRAD_TOKENIZER(name, make, load, file_end, open, doc) {#name, doc, make, load, file_end, open},
#include "data/tokenizers.inc"
#undef BITGRAD_TOKENIZER
  });
  return all;
}

}  // namespace

const TokenizerKind* data::find_tokenizer(std::string_view name) { return tokenizers().find(name); }
std::vector<const TokenizerKind*> data::tokenizer_kinds() { return tokenizers().all(); }

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += bytes(id);
  return text;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> all;
  tokenizer.encode(text, [&](std::span<const int32_t> ids) { all.insert(all.end(), ids.begin(), ids.end()); });
  return all;
}

void register_tokenizer(TokenizerKind kind) {
  constexpr std::string_view kWhere = "register_tokenizer";
  check_kind_name(kWhere, kind.name);
  require(kind.make != nullptr || (kind.open != nullptr && !kind.file_end.empty()), kWhere, "tokenizer '", kind.name,
          "' has neither a make function nor an open function with the end of its files' names");
  tokenizers().add(kWhere, "a tokenizer", std::move(kind));
}

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const TokenizerKind* kind : tokenizer_kinds())
    if (kind->make != nullptr) names.push_back(kind->name);
  return names;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name, std::string_view text) {
  const TokenizerKind* const kind = find_tokenizer(name);
  if (kind == nullptr || kind->make == nullptr) fail("tokenizer", unknown_name("tokenizer", name, tokenizer_names()));
  std::shared_ptr<const Tokenizer> made = kind->make(text);
  require(made != nullptr && made->vocabulary() >= 1, name, "the kind returned no tokenizer with ids");
  return made;
}

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr size_t kMostBytes = 4;                           // longest UTF-8 character

// Whether these bytes are a proper prefix of some UTF-8 character.
bool begins_character(std::string_view bytes) {
  if (bytes.empty() || bytes.size() >= kMostBytes) return false;
  // Tries, as the second byte, the ends of the allowed ranges, and any continuation byte after that.
  std::string whole(bytes);
  for (const char second : {'\x80', '\x8f', '\x9f', '\xa0', '\xbf'}) {
    std::string tried = whole;
    if (tried.size() == 1) tried += second;
    while (tried.size() <= kMostBytes) {
      if (utf8_bytes(tried) == tried.size()) return true;
      tried += '\x80';
    }
  }
  return false;
}

// `text` does not begin with a valid character: returns the length of the longest character prefix at its start, at
// least 1.
size_t broken_bytes(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && n + 1 < kMostBytes && begins_character(text.substr(0, n + 1))) ++n;
  return begins_character(text.substr(0, n)) ? n : 1;
}

}  // namespace

StreamedText::StreamedText(const Tokenizer& tokenizer, std::vector<std::string> stop)
    : tokenizer_(tokenizer), stop_(std::move(stop)) {
  for (const std::string& text : stop_)
    require(!text.empty(), "stop", "got an empty text, expected one with characters");
}

// Text of held bytes [0, end). Bytes that later ones may complete are included only if `last`.
std::string StreamedText::take(size_t end, bool last) {
  std::string out;
  std::string_view rest = std::string_view(held_).substr(0, end);
  while (!rest.empty()) {
    const size_t whole = utf8_bytes(rest);
    if (whole == 0 && !last && begins_character(rest)) break;
    const size_t used = whole > 0 ? whole : broken_bytes(rest);
    out += whole > 0 ? rest.substr(0, used) : kReplacement;
    rest.remove_prefix(used);
  }
  held_.erase(0, end - rest.size());
  return out;
}

std::string StreamedText::add(int32_t id) {
  const std::string_view bytes = tokenizer_.bytes(id);
  if (stopped_ || tokenizer_.special(id)) return "";
  held_ += bytes;
  size_t first = held_.npos;
  for (const std::string& text : stop_) first = std::min(first, held_.find(text));
  if (first != held_.npos) {
    stopped_ = true;
    std::string out = take(first, true);
    held_.clear();
    return out;
  }
  // Hold back a suffix that may begin a stop text.
  size_t keep = 0;
  for (const std::string& text : stop_)
    for (size_t n = std::min(text.size() - 1, held_.size()); n > keep; --n)
      if (held_.ends_with(std::string_view(text).substr(0, n))) keep = n;
  return take(held_.size() - keep, false);
}

std::string StreamedText::finish() { return take(held_.size(), true); }

}  // namespace bitgrad
