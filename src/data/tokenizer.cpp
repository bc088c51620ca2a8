#include "bitgrad/data/tokenizer.h"

#include <deque>
#include <mutex>

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/key.h"
#include "bitgrad/base/text.h"
#include "data/tokenizers.h"

namespace bitgrad {
namespace {

using namespace data;

struct TokenizerRegistry {
  std::deque<TokenizerKind> kinds = {
#define BITGRAD_TOKENIZER(name, make, load, file_end, open, doc) {#name, doc, make, load, file_end, open},
#include "data/tokenizers.inc"
#undef BITGRAD_TOKENIZER
  };
  std::mutex mutex;
};
TokenizerRegistry& tokenizers() {
  static TokenizerRegistry all;
  return all;
}

}  // namespace

const TokenizerKind* data::find_tokenizer(std::string_view name) {
  TokenizerRegistry& all = tokenizers();
  const std::lock_guard lock(all.mutex);
  for (const TokenizerKind& kind : all.kinds)
    if (kind.name == name) return &kind;
  return nullptr;
}

std::vector<const TokenizerKind*> data::tokenizer_kinds() {
  TokenizerRegistry& all = tokenizers();
  const std::lock_guard lock(all.mutex);
  std::vector<const TokenizerKind*> kinds;
  for (const TokenizerKind& kind : all.kinds) kinds.push_back(&kind);
  return kinds;
}

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

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids) { return tokenizer.decode(ids); }

void register_tokenizer(TokenizerKind kind) {
  constexpr std::string_view kWhere = "register_tokenizer";
  check_kind_name(kWhere, kind.name);
  require(kind.make != nullptr || (kind.open != nullptr && !kind.file_end.empty()), kWhere, "tokenizer '", kind.name,
          "' has neither a make function nor an open function with the end of its files' names");
  const detail::Named named{"a tokenizer", kind.name};
  detail::require_new(kWhere, named, find_tokenizer(kind.name) != nullptr);
  const auto shared = std::make_shared<TokenizerKind>(std::move(kind));
  detail::add_new(named, [shared] {
    TokenizerRegistry& all = tokenizers();
    const std::lock_guard lock(all.mutex);
    all.kinds.push_back(std::move(*shared));
  });
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

}  // namespace bitgrad
