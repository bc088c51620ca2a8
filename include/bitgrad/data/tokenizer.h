// Tokenizers: text to ids and back. Built-in kinds are listed in src/data/tokenizers.inc; programs add their own with
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

// Const member functions may be called from several threads concurrently.
class Tokenizer {
 public:
  // Receives the next ids of a text; `ids` is valid only during the call.
  using Sink = std::function<void(std::span<const int32_t> ids)>;

  virtual ~Tokenizer() = default;
  virtual std::string_view kind() const = 0;
  // Ids are 0 .. vocabulary()-1.
  virtual int64_t vocabulary() const = 0;
  // Encodes a text front to back and passes the ids to `sink` in runs. Throws Error(kData) with the position for bytes
  // that have no id.
  virtual void encode(std::string_view text, const Sink& sink) const = 0;
  // The same, but reads no special token in the text: <|im_end|> in a message is then text, as its author wrote it.
  virtual void encode_plain(std::string_view text, const Sink& sink) const { encode(text, sink); }
  // Calls f(part, id, or -1 for text) for the special and added tokens that a template names, and the text between
  // them, front to back; no part is empty. Default: the text alone.
  using Part = std::function<void(std::string_view part, int32_t id)>;
  virtual void split_special(std::string_view text, const Part& f) const {
    if (!text.empty()) f(text, -1);
  }
  // The bytes of an id; valid for the lifetime of the tokenizer. Throws Error for an id out of range.
  virtual std::string_view bytes(int32_t id) const = 0;
  // The text of ids. Default: their bytes, concatenated.
  virtual std::string decode(std::span<const int32_t> ids) const;
  // Whether an id is a special token without text, such as the end of a document. The id must be in range.
  virtual bool special(int32_t) const { return false; }
  // The special id between documents; -1 if there is none.
  virtual int32_t end_id() const { return -1; }
  // Input for TokenizerKind::load to recreate this tokenizer; null if the name of the kind is enough.
  virtual Json content() const { return nullptr; }
};

// Error(kData) for a file of another kind (require_text). Warns of control characters, and of bytes that are not UTF-8,
// with their number and the first place; the tokenizer "bytes" takes any.
void check_text(const Tokenizer& tokenizer, std::string_view text, const std::string& path);
std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text);

// A kind has `make`, or `open` with `file_end`. Kinds whose tokenizers are stored in model files have `load`.
struct TokenizerKind {
  std::string name = {};
  std::string doc = {};
  // Creates a tokenizer for a text to be encoded, whose characters may become the vocabulary. Throws Error(kData) for a
  // text that it cannot read.
  std::function<std::shared_ptr<const Tokenizer>(std::string_view text)> make = {};
  // Recreates a tokenizer from Tokenizer::content(). The content is untrusted: throws Error(kData) or JsonError if it
  // is invalid.
  std::function<std::shared_ptr<const Tokenizer>(const Json& content)> load = {};
  std::string file_end = {};  // suffix of files with such a tokenizer, e.g. ".json"
  std::function<std::shared_ptr<const Tokenizer>(std::string_view bytes)> open = {};  // from the bytes of such a file
};
// Registers a kind from a program or plugin. Throws Error for an invalid or taken name, or if both `make` and `open`
// are missing.
void register_tokenizer(TokenizerKind kind);
// Names of the kinds that have `make`: built-in ones first, then in order of registration.
std::vector<std::string> tokenizer_names();
// Throws Error for an unknown name, otherwise as TokenizerKind::make.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name, std::string_view text);

// Whether `name` is, by its suffix, a tokenizer file and not the name of a kind.
bool is_tokenizer_file(std::string_view name);
// Opens a tokenizer file: tokenizer.json of Hugging Face, .model of SentencePiece, .tokens.json of `bitgrad tokenize`.
// Error(kData) names the file.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path);

// {"kind", "vocabulary", "end", "content"}, as stored in model files and NAME.tokens.json. Throws Error for a kind
// without `load`.
Json tokenizer_record(const Tokenizer& tokenizer);
// Recreates a tokenizer from its record. Throws Error(kData) for a damaged record, Error for an unknown kind.
std::shared_ptr<const Tokenizer> load_tokenizer(const Json& record);

// For messages: "chars of 65 ids".
std::string describe(const Tokenizer& tokenizer);
// How two tokenizers differ, for messages: "chars of 65 ids, bytes of 256 ids"; empty if they produce the same ids.
std::string tokenizer_difference(const Tokenizer& a, const Tokenizer& b);

// Incremental text of ids that arrive one by one: returns only text that later ids cannot change.
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
