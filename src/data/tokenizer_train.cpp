#include "data/tokenizer_train.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "data/conversations.h"
#include "data/data_file.h"
#include "data/tokenizers.h"

namespace bitgrad {
namespace {

constexpr std::string_view kTokenizerTrain = "tokenizer train";

using Train = std::string (*)(const TokenizerTraining&, const std::vector<std::string>&, std::vector<std::string>&);
struct Kind {
  std::string_view name;
  Train train;
};
constexpr Kind kTrainerKinds[] = {
#define BITGRAD_TOKENIZER_TRAINER(name, train, ...) {#name, data::train},
#include "data/tokenizer_trainers.inc"
#undef BITGRAD_TOKENIZER_TRAINER
};

// Position of the first byte that begins no character; npos: the text is UTF-8.
size_t broken_at(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t n = utf8_bytes(text.substr(at));
    if (n == 0) return at;
    at += n;
  }
  return text.npos;
}

void check_special(const std::vector<std::string>& special) {
  for (size_t i = 0; i < special.size(); ++i) {
    const std::string& token = special[i];
    require(!token.empty(), kTokenizerTrain, "special: got an empty text, expected a token such as <|endoftext|>");
    require(broken_at(token) == token.npos, kTokenizerTrain, "special: got '", printable(token),
            "', which is not UTF-8");
    require(std::find(special.begin(), special.begin() + static_cast<std::ptrdiff_t>(i), token) ==
                special.begin() + static_cast<std::ptrdiff_t>(i),
            kTokenizerTrain, "special: got '", printable(token), "' twice, expected each token once");
  }
}

void check_texts(const std::vector<std::string>& texts) {
  size_t bytes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    bytes += text.size();
    const size_t at = broken_at(text);
    if (at == text.npos) continue;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    fail_with(ErrorCode::kData, kTokenizerTrain, "text ", i + 1, " of ", texts.size(), ", line ", line, ", byte ", at,
              ": begins no well-formed UTF-8 character. Convert the text: iconv -t UTF-8.");
  }
  if (bytes == 0)
    fail_with(ErrorCode::kData, kTokenizerTrain, "got ", texts.size(), " empty texts, expected at least one byte");
}

void add_contents(const Json& object, std::string& all) {
  if (!object.is_object()) throw JsonError("got " + object.dump().substr(0, 40) + ", expected an object");
  for (const char* name : {"prompt", "completion", "text"})
    if (object.contains(name)) all += data::text_member(object, name) + '\n';
  if (!object.contains("messages")) return;
  const Json& messages = data::messages_member(object);
  for (size_t i = 0; i < messages.size(); ++i) {
    try {
      all += data::text_member(messages[i], "content") + '\n';
    } catch (const JsonError& e) {
      throw JsonError(concat("messages.", i, ": ", e.what()));
    }
  }
}

std::string contents_of_lines(const std::string& path, const std::string& lines) {
  std::string all;
  int64_t number = 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = std::string_view(lines).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    try {
      add_contents(Json::parse(line, data::kLineLimits), all);
    } catch (const JsonError& e) {
      fail_with(ErrorCode::kData, kTokenizerTrain, printable(path), " line ", number, ": ", e.what(), '.');
    }
  }
  if (all.empty())
    fail_with(ErrorCode::kData, kTokenizerTrain, "'", path,
              "': got no text in members text, prompt, completion, or content of messages");
  return all;
}

}  // namespace

std::string training_text(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 36;
  if (!file_system().exists(path))
    fail_with(ErrorCode::kData, kTokenizerTrain, "'", path, "': no such file, expected a text");
  const std::vector<uint8_t> bytes = read_file(path, kMostBytes);
  std::string text = data::plain_text(path, {bytes.begin(), bytes.end()});
  require_text(kTokenizerTrain, path, text);
  if (text.empty())
    fail_with(ErrorCode::kData, kTokenizerTrain, "'", path, "': got an empty text, expected at least one byte");
  return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz") ? contents_of_lines(path, text) : text;
}

const std::vector<TokenizerTrainer>& tokenizer_trainers() {
  static const std::vector<TokenizerTrainer> all{
#define BITGRAD_TOKENIZER_TRAINER(name, train, file_end, splits, doc) {#name, doc, file_end, splits},
#include "data/tokenizer_trainers.inc"
#undef BITGRAD_TOKENIZER_TRAINER
  };
  return all;
}

TrainedTokenizer train_tokenizer(const TokenizerTraining& spec, const std::vector<std::string>& texts) {
  const auto* const kind = std::find_if(std::begin(kTrainerKinds), std::end(kTrainerKinds),
                                        [&](const Kind& k) { return k.name == spec.kind; });
  if (kind == std::end(kTrainerKinds)) {
    std::vector<std::string> names;
    for (const TokenizerTrainer& known : tokenizer_trainers()) names.push_back(known.name);
    fail(kTokenizerTrain, unknown_name("kind", spec.kind, names));
  }
  const TokenizerTrainer& described = tokenizer_trainers()[static_cast<size_t>(kind - std::begin(kTrainerKinds))];
  require(described.splits || spec.split.empty(), kTokenizerTrain, "split: got ", spec.split, " for ", spec.kind,
          ", which splits texts in its own way");
  constexpr int64_t kMost = int64_t{1} << 24;
  require(spec.vocabulary <= kMost, kTokenizerTrain, "vocabulary: got ", spec.vocabulary, ", expected at most ", kMost);
  check_special(spec.special);
  check_texts(texts);
  TrainedTokenizer out;
  out.file = kind->train(spec, texts, out.notes);
  for (const TokenizerKind* opener : data::tokenizer_kinds())
    if (opener->file_end == described.file_end) out.tokenizer = opener->open(out.file);
  if (const int64_t ids = out.tokenizer->vocabulary(); ids < spec.vocabulary)
    out.notes.push_back(concat("the texts give ", ids, " ids, fewer than the ", spec.vocabulary, " of vocabulary"));
  return out;
}

}  // namespace bitgrad
