// Tokenizers in files: the formats of other programs, and the records stored in model files.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "data/data_file.h"
#include "data/token_dataset.h"
#include "data/tokenizers.h"

namespace bitgrad {
namespace {

using namespace data;

constexpr std::string_view kTokenizer = "tokenizer";
constexpr int64_t kMostFileBytes = int64_t{1} << 28;
constexpr int64_t kMostIds = int64_t{1} << 24;

// Runs `use` on untrusted text and rethrows what it finds wrong as Error(kData).
template <typename Use>
auto reading(const std::string& what, Use use) {
  try {
    return use();
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, kTokenizer, what, ": ", e.what());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData && e.code() != ErrorCode::kUsage) throw;
    fail_with(ErrorCode::kData, kTokenizer, what, ": ", e.what());
  }
}

const TokenizerKind* kind_of_file(std::string_view name) {
  for (const TokenizerKind* kind : tokenizer_kinds())
    if (!kind->file_end.empty() && name.ends_with(kind->file_end)) return kind;
  return nullptr;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string quoted(std::string_view bytes) {
  constexpr size_t kShown = 24;
  return concat('\'', printable(bytes.substr(0, kShown)), bytes.size() > kShown ? "..." : "", '\'');
}

// What of a tokenizer's content changes ids. A tokenizer.json has more: what is done behind the encoding
// (post_processor, decoder), and the form of its lists; its vocabulary is compared by id.
std::string what_counts(const Tokenizer& tokenizer) {
  Json content = tokenizer.content();
  if (tokenizer.kind() != "bpe" || !content.is_object() || !content.contains("model")) return content.dump();
  Json out = Json::object(), merges = Json::array(), added = Json::array();
  for (const char* part : {"normalizer", "pre_tokenizer"})
    out[part] = content.contains(part) ? content.at(part) : Json(nullptr);
  const Json& model = content.at("model");
  out["ignore_merges"] = model.value("ignore_merges", false);
  for (const Json& merge : model.at("merges"))
    merges.push_back(merge.is_string() ? merge : Json(merge.at(0).text() + ' ' + merge.at(1).text()));
  out["merges"] = std::move(merges);
  if (content.contains("added_tokens") && !content.at("added_tokens").is_null())
    for (const Json& token : content.at("added_tokens")) {
      const bool special = token.value("special", false);
      added.push_back(Json::array({token.at("id"), token.at("content"), token.value("lstrip", false),
                                   token.value("rstrip", false), special, token.value("normalized", !special)}));
    }
  out["added"] = std::move(added);
  std::string text = out.dump();
  for (const std::string_view gone : {R"("trim_offsets":true,)", R"("trim_offsets":false,)"})
    for (size_t at; (at = text.find(gone)) != std::string::npos;) text.erase(at, gone.size());
  return text;
}

}  // namespace

bool is_tokenizer_file(std::string_view name) { return kind_of_file(name) != nullptr; }

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path) {
  if (path.ends_with(kTokensEnd)) return read_tokens_record(path).tokenizer;
  const TokenizerKind* const kind = kind_of_file(path);
  if (kind == nullptr) {
    std::string ends;
    for (const TokenizerKind* k : tokenizer_kinds())
      if (!k->file_end.empty()) ends += concat(ends.empty() ? "" : ", ", k->file_end, " (", k->doc, ')');
    fail(kTokenizer, "'", path, "': got a name with another end, expected a file of a tokenizer: ", ends, '.');
  }
  const std::vector<uint8_t> bytes = read_file(path, kMostFileBytes);
  return reading(path, [&] {
    if (const Json added = kind->name == "sentencepiece" ? tokens_beside(folder_of(path)) : nullptr; !added.is_null())
      return make_sentencepiece_tokenizer(pieces_as_transformers({bytes.begin(), bytes.end()}, folder_of(path)), added);
    auto made = kind->open({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    require(made != nullptr && made->vocabulary() >= 1, kTokenizer, "the kind returned no tokenizer with ids");
    return made;
  });
}

Json tokenizer_record(const Tokenizer& tokenizer) {
  const TokenizerKind* const kind = find_tokenizer(tokenizer.kind());
  require(kind != nullptr && kind->load != nullptr, kTokenizer, "kind '", tokenizer.kind(),
          "' has no load function: a file that holds it could not be read");
  return {{"kind", tokenizer.kind()},
          {"vocabulary", tokenizer.vocabulary()},
          {"end", tokenizer.end_id()},
          {"content", tokenizer.content()}};
}

std::shared_ptr<const Tokenizer> load_tokenizer(const Json& record) {
  return reading("record", [&] {
    const std::string& name = record.at("kind").text();
    const TokenizerKind* const kind = find_tokenizer(name);
    require(kind != nullptr && kind->load != nullptr, kTokenizer, "kind '", name,
            "' is not known: it came from another program or from a plugin");
    auto made = kind->load(record.at("content"));
    const auto ids = record.at("vocabulary").get<int64_t>();
    require(made != nullptr && made->vocabulary() == ids && ids >= 1 && ids <= kMostIds, kTokenizer, name, ": got ",
            made == nullptr ? 0 : made->vocabulary(), " ids, its record counts ", ids);
    return made;
  });
}

void check_text(const Tokenizer& tokenizer, std::string_view text, const std::string& path) {
  require_text(kTokenizer, path, text);
  data::warn_of_control_bytes(path, std::count_if(text.begin(), text.end(), is_control_byte), std::ssize(text));
  if (tokenizer.kind() == "bytes") return;
  constexpr std::string_view kHint = "Convert it: iconv -t UTF-8.";
  size_t wrong = 0, first = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n = utf8_bytes(text.substr(at));
    if (n == 0 && wrong++ == 0) first = at;
    at += std::max<size_t>(1, n);
  }
  if (wrong == 0) return;
  const int64_t line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first), '\n');
  log(LogLevel::kWarning, concat(path, ": ", wrong, " of ", text.size(), " bytes are not UTF-8, the first in line ",
                                 line, " at byte ", first,
                                 ": they are read as bytes, or as U+FFFD. If the text is in another "
                                 "encoding, its words are not the model's. ",
                                 kHint));
}

std::string describe(const Tokenizer& tokenizer) {
  return concat(tokenizer.kind(), " of ", tokenizer.vocabulary(), " ids");
}

std::string tokenizer_difference(const Tokenizer& a, const Tokenizer& b) {
  std::string both = concat(describe(a), ", ", describe(b));
  if (a.kind() != b.kind() || a.vocabulary() != b.vocabulary()) return both;
  for (int32_t id = 0; id < a.vocabulary(); ++id)
    if (a.bytes(id) != b.bytes(id))
      return concat(both, ": id ", id, " is ", quoted(a.bytes(id)), ", ", quoted(b.bytes(id)));
  // Compare as text: comparing objects with many members is slow.
  return what_counts(a) == what_counts(b) ? "" : concat(both, " that split texts in different ways");
}

}  // namespace bitgrad
