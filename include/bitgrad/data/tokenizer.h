// Tokenizers: text to ids and back. Kinds are a list (src/data/tokenizers.inc); programs add theirs with
// register_tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

// Const calls may come from several threads at once.
class Tokenizer {
 public:
  // Takes the next ids of a text; good during the call.
  using Sink = std::function<void(std::span<const int32_t> ids)>;

  virtual ~Tokenizer() = default;
  virtual std::string_view kind() const = 0;
  // Ids are 0 .. vocabulary()-1.
  virtual int64_t vocabulary() const = 0;
  // The ids of a text from front to back, a run at a time. Error(kData) for bytes that have no id, with their place.
  virtual void encode(std::string_view text, const Sink& sink) const = 0;
  // The bytes that an id stands for; good as long as the tokenizer lives. Error for an id out of range.
  virtual std::string_view bytes(int32_t id) const = 0;
};

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text);
std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids);

struct TokenizerKind {
  std::string name = {};
  std::string doc = {};
  // For a text that it will encode: its characters may be the vocabulary. Error(kData) for a text that it cannot read.
  std::function<std::shared_ptr<const Tokenizer>(std::string_view text)> make = {};
};
// Adds a kind from a program or plugin. Throws Error for a known or bad name, and without `make`.
void register_tokenizer(TokenizerKind kind);
// Built-in ones first, then in order of registration.
std::vector<std::string> tokenizer_names();
// Throws Error for an unknown name; else as TokenizerKind::make.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name, std::string_view text);

}  // namespace bitgrad
