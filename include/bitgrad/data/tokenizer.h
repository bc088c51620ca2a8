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

#include "bitgrad/base/json.h"

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
  // The text of ids: their bytes back to back, where a kind says nothing else.
  virtual std::string decode(std::span<const int32_t> ids) const;
  // Whether an id is a mark, such as the end of a document, and stands for no text. Ids in range.
  virtual bool special(int32_t) const { return false; }
  // The mark between documents; -1: there is none.
  virtual int32_t end_id() const { return -1; }
  // What TokenizerKind::load makes the same tokenizer of; null where the name of the kind says all.
  virtual Json content() const { return nullptr; }
};

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text);
std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// A kind has `make`, or `open` with `file_end`; one whose tokenizers go into files of models has `load`.
struct TokenizerKind {
  std::string name = {};
  std::string doc = {};
  // For a text that it will encode: its characters may be the vocabulary. Error(kData) for a text that it cannot read.
  std::function<std::shared_ptr<const Tokenizer>(std::string_view text)> make = {};
  // From Tokenizer::content(). Anybody may have written it: Error(kData) or JsonError for what is wrong.
  std::function<std::shared_ptr<const Tokenizer>(const Json& content)> load = {};
  std::string file_end = {};  // of files that hold such a tokenizer, such as ".json"
  std::function<std::shared_ptr<const Tokenizer>(std::string_view bytes)> open = {};  // of such a file's bytes
};
// Adds a kind from a program or plugin. Throws Error for a known or bad name, and without `make` and `open`.
void register_tokenizer(TokenizerKind kind);
// The kinds that have `make`: built-in ones first, then in order of registration.
std::vector<std::string> tokenizer_names();
// Throws Error for an unknown name; else as TokenizerKind::make.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name, std::string_view text);

// Whether this names a file that holds a tokenizer, by its end, and no kind.
bool is_tokenizer_file(std::string_view name);
// The tokenizer of a file: tokenizer.json of Hugging Face, .model of SentencePiece, .tokens.json of `bitgrad tokenize`.
// Error(kData) names the file.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path);

// {"kind", "vocabulary", "end", "content"}: what files of models and NAME.tokens.json hold. Error for a kind without
// `load`.
Json tokenizer_record(const Tokenizer& tokenizer);
// And back. Error(kData) for a record that is damaged, Error for a kind that this program does not know.
std::shared_ptr<const Tokenizer> load_tokenizer(const Json& record);

// "chars of 65 ids".
std::string describe(const Tokenizer& tokenizer);
// Where two differ, for a message: "chars of 65 ids, bytes of 256 ids"; empty: they give the same ids.
std::string tokenizer_difference(const Tokenizer& a, const Tokenizer& b);

}  // namespace bitgrad
