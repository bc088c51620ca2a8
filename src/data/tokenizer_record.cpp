// Tokenizers in files: the formats of other programs, and the records stored in model files.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "data/token_shards.h"
#include "data/tokenizers.h"

namespace bitgrad {
namespace {

using namespace data;

constexpr std::string_view kWhere = "tokenizer";
constexpr int64_t kMostFileBytes = int64_t{1} << 28;
constexpr int64_t kMostIds = int64_t{1} << 24;

// Runs `use` on untrusted text and rethrows what it finds wrong as Error(kData).
template <typename Use>
auto reading(const std::string& what, Use use) {
  try {
    return use();
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, kWhere, what, ": ", e.what());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData && e.code() != ErrorCode::kUsage) throw;
    fail_with(ErrorCode::kData, kWhere, what, ": ", e.what());
  }
}

const TokenizerKind* kind_of_file(std::string_view name) {
  for (const TokenizerKind* kind : tokenizer_kinds())
    if (!kind->file_end.empty() && name.ends_with(kind->file_end)) return kind;
  return nullptr;
}

std::string quoted(std::string_view bytes) {
  constexpr size_t kShown = 24;
  return concat('\'', printable(bytes.substr(0, kShown)), bytes.size() > kShown ? "..." : "", '\'');
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
    fail(kWhere, "'", path, "': got a name with another end, expected a file of a tokenizer: ", ends, '.');
  }
  const std::vector<uint8_t> bytes = read_file(path, kMostFileBytes);
  return reading(path, [&] {
    auto made = kind->open({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    require(made != nullptr && made->vocabulary() >= 1, kWhere, "the kind returned no tokenizer with ids");
    return made;
  });
}

Json tokenizer_record(const Tokenizer& tokenizer) {
  const TokenizerKind* const kind = find_tokenizer(tokenizer.kind());
  require(kind != nullptr && kind->load != nullptr, kWhere, "kind '", tokenizer.kind(),
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
    require(kind != nullptr && kind->load != nullptr, kWhere, "kind '", name,
            "' is not known: it came from another program or from a plugin");
    auto made = kind->load(record.at("content"));
    const auto ids = record.at("vocabulary").get<int64_t>();
    require(made != nullptr && made->vocabulary() == ids && ids >= 1 && ids <= kMostIds, kWhere, name, ": got ",
            made == nullptr ? 0 : made->vocabulary(), " ids, its record counts ", ids);
    return made;
  });
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
  return a.content().dump() == b.content().dump() ? "" : concat(both, " that split texts in different ways");
}

}  // namespace bitgrad
