// Token files: a text that a tokenizer reads, or ids as other programs store them.
//
// Samples are windows of `context` ids, targets the next id at every position. order random: an epoch draws windows
// anywhere (with replacement), as many as lie side by side; shuffled: those side by side, what is left at the end is
// not read; sequential: the same from front to back, with what is left as a shorter last sample.
#include <algorithm>
#include <array>
#include <cstring>

#include "bitgrad/base/error.h"
#include "data/content.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/token_dataset.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kTokens = "data.tokens";

// The whole content of the file that `key` names, plain or gzip.
std::string read_text(const DatasetSpec& spec, const std::string& key, const std::string& file) {
  const std::string path = data_path(spec.root, file);
  const std::unique_ptr<InputFile> opened = open_data_file(kTokens, spec, key, file, "a text");
  ContentReader reader(path, *opened);
  constexpr size_t kPiece = size_t{1} << 20;
  std::string text;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const int64_t got = reader.read(reinterpret_cast<uint8_t*>(text.data()) + before, int64_t{kPiece});
    text.resize(before + static_cast<size_t>(got));
    if (got < int64_t{kPiece}) return text;
  }
}

// What `use` says of a text is said of this file.
template <typename Use>
auto of_file(const std::string& path, Use use) {
  try {
    return use();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData) throw;
    fail_with(ErrorCode::kData, kTokens, path, ": ", e.what());
  }
}

// The ids of this data set among all of the file.
struct IdRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
IdRange range_of(const DatasetSpec& spec, int64_t ids) {
  if (spec.whole) return {0, ids};
  const auto cut = static_cast<int64_t>(static_cast<double>(ids) * (1.0 - spec.test_fraction));
  return spec.split == "train" ? IdRange{0, cut} : IdRange{cut, ids};
}

// Ids as they are encoded, in the fewest bytes that hold them.
class NarrowIds {
 public:
  explicit NarrowIds(int64_t vocabulary)
      : form_(vocabulary <= 256     ? StoredAs::kUint8
              : vocabulary <= 65536 ? StoredAs::kUint16
                                    : StoredAs::kInt32) {}
  void add(std::span<const int32_t> ids) {
    const size_t each = static_cast<size_t>(element_bytes(form_)), before = bytes_.size();
    bytes_.resize(before + ids.size() * each);
    for (size_t i = 0; i < ids.size(); ++i) std::memcpy(bytes_.data() + before + i * each, &ids[i], each);
  }
  int64_t size() const { return std::ssize(bytes_) / element_bytes(form_); }
  std::unique_ptr<TokenSource> part(const IdRange& range) const {
    const int64_t each = element_bytes(form_);
    TrackedBytes ids(range.size() * each, MemoryKind::kDataset);
    std::copy_n(bytes_.data() + range.begin * each, range.size() * each, ids.data());
    return memory_tokens(std::move(ids), form_);
  }

 private:
  StoredAs form_;
  std::vector<uint8_t> bytes_;
};

// Bytes of text that a target stands for, on average: the ids after the first.
double bytes_per_target(const TokenSource& ids, const Tokenizer& tokenizer) {
  std::array<int32_t, 4096> piece;
  int64_t bytes = 0;
  for (int64_t at = 1; at < ids.size(); at += std::ssize(piece)) {
    const int64_t n = std::min<int64_t>(std::ssize(piece), ids.size() - at);
    ids.read(at, n, piece.data());
    for (int64_t i = 0; i < n; ++i) bytes += std::ssize(tokenizer.bytes(piece[static_cast<size_t>(i)]));
  }
  return ids.size() < 2 ? 0 : static_cast<double>(bytes) / static_cast<double>(ids.size() - 1);
}

struct Opened {
  std::unique_ptr<TokenSource> ids;
  int64_t all = 0;  // of the file
  TokenTask task = {};
};

Opened open_text(const DatasetSpec& spec) {
  const std::string path = data_path(spec.root, spec.file), text = read_text(spec, "file", spec.file);
  const std::string& other = spec.vocabulary_file;
  Opened out;
  std::shared_ptr<const Tokenizer>& tokenizer = out.task.tokenizer;
  if (other.empty() || other == spec.file) {
    tokenizer = of_file(path, [&] { return make_tokenizer(spec.tokenizer, text); });
  } else {
    const std::string words = read_text(spec, "vocabulary_file", other);
    tokenizer = of_file(data_path(spec.root, other), [&] { return make_tokenizer(spec.tokenizer, words); });
  }
  out.task.vocabulary = tokenizer->vocabulary();
  NarrowIds ids(out.task.vocabulary);
  of_file(path, [&] { return tokenizer->encode(text, [&](std::span<const int32_t> run) { ids.add(run); }); });
  out.all = ids.size();
  out.ids = ids.part(range_of(spec, out.all));
  out.task.bytes_per_id = bytes_per_target(*out.ids, *tokenizer);
  return out;
}

// llm.c's files: 256 little-endian int32, of which the first three are a magic number, a version, and the count of ids
// behind them (karpathy/llm.c, dev/data/data_common.py).
constexpr int64_t kHeaderBytes = 1024;
struct ShardKind {
  int32_t magic, version;
  int64_t id_bytes;
};
constexpr ShardKind kShards[] = {{20240520, 1, 2}, {20240801, 7, 4}};

TokenFile shard_form(const std::string& path, InputFile& file) {
  std::array<int32_t, 3> head{};
  const bool there = file.size() >= kHeaderBytes && file.read_at(0, head.data(), sizeof(head)) == sizeof(head);
  const auto* const kind = std::find_if(std::begin(kShards), std::end(kShards), [&](const ShardKind& k) {
    return there && k.magic == head[0] && k.version == head[1];
  });
  if (kind == std::end(kShards))
    fail_with(ErrorCode::kData, kTokens, path, ": stored: shard: got a file that begins with ", head[0], ", ", head[1],
              ", expected a header of llm.c: 20240520, 1 (uint16) or 20240801, 7 (uint32). Ids without a header are "
              "stored: uint16 or uint32.");
  TokenFile form;
  form.offset = kHeaderBytes;
  form.id_bytes = kind->id_bytes;
  form.ids = head[2];
  const int64_t bytes = kHeaderBytes + form.ids * form.id_bytes;
  if (head[2] < 0 || bytes != file.size())
    fail_with(ErrorCode::kData, kTokens, path, ": the header counts ", head[2], " ids, which end at byte ", bytes,
              ", the file has ", file.size(), " bytes.");
  return form;
}

TokenFile raw_form(const std::string& path, const InputFile& file, int64_t id_bytes) {
  if (file.size() % id_bytes != 0)
    fail_with(ErrorCode::kData, kTokens, path, ": got ", file.size(), " bytes, expected a multiple of ", id_bytes,
              ", the bytes of an id.");
  TokenFile form;
  form.id_bytes = id_bytes;
  form.ids = file.size() / id_bytes;
  return form;
}

Opened open_ids(const DatasetSpec& spec, const std::string& stored) {
  const int64_t vocabulary = spec.keys.integer("vocabulary");
  require(vocabulary > 0, kTokens,
          "vocabulary: got none, expected the number of different ids, which a file stored as ", stored,
          " does not say.");
  require(spec.tokenizer.empty(), kTokens, "tokenizer: got ", spec.tokenizer, " for a file stored as ", stored,
          ": it holds ids, no text.");
  const std::string path = data_path(spec.root, spec.file);
  std::unique_ptr<InputFile> file = open_data_file(kTokens, spec, "file", spec.file, "a file of ids");
  TokenFile form = stored == "shard" ? shard_form(path, *file) : raw_form(path, *file, stored == "uint16" ? 2 : 4);
  Opened out;
  out.all = form.ids;
  const IdRange range = range_of(spec, form.ids);
  form.name = path;
  form.vocabulary = out.task.vocabulary = vocabulary;
  form.offset += range.begin * form.id_bytes;
  form.ids = range.size();
  out.ids = file_tokens(std::move(file), form);
  return out;
}

TokenWindows windows_of(const DatasetSpec& spec, int64_t ids) {
  using Kind = EpochOrder::Kind;
  const std::string order = spec.keys.contains("order") ? spec.keys.text("order")
                            : spec.split == "test"      ? "sequential"
                                                        : "shuffled";
  TokenWindows w;
  w.context = spec.context;
  w.order = order == "random" ? Kind::kRandom : order == "shuffled" ? Kind::kShuffled : Kind::kSequential;
  w.tail = w.order == Kind::kSequential;
  w.stride = w.order == Kind::kRandom ? 1 : spec.context;
  if (w.order == Kind::kRandom) w.epoch_samples = std::max<int64_t>(1, (ids - 1) / spec.context);
  return w;
}

}  // namespace

std::vector<Key> tokens_keys() {
  using Type = Key::Type;
  return {
      {.name = "stored",
       .type = Type::kChoice,
       .standard = "text",
       .doc = "what the file holds. text: text, plain or .gz, for data.tokenizer; uint16, uint32: little-endian ids "
              "back to back, as nanoGPT writes them; shard: llm.c's files. Ids are read by position as they are "
              "needed",
       .choices = {"text", "uint16", "uint32", "shard"}},
      {"vocabulary", Type::kInt, "[0, 16777216]", "0",
       "number of different ids, required for stored ids; 0: that of the tokenizer"},
      {.name = "order",
       .type = Type::kChoice,
       .doc = "what an epoch reads. random: windows anywhere, as many as lie side by side; shuffled: those side by "
              "side; sequential: the same in order, and the rest at the end. Default: shuffled, sequential under "
              "data.test",
       .choices = {"random", "shuffled", "sequential"}}};
}

std::unique_ptr<Dataset> make_tokens_dataset(const DatasetSpec& spec) {
  check_text_keys(kTokens, spec);
  const std::string stored = spec.keys.text("stored"), path = data_path(spec.root, spec.file);
  if (stored == "text")
    require(!spec.tokenizer.empty(), kTokens, "tokenizer: got none, expected one for a text, such as chars or bytes.");
  Opened opened = stored == "text" ? open_text(spec) : open_ids(spec, stored);
  if (stored == "text" && spec.keys.integer("vocabulary") != 0)
    require(spec.keys.integer("vocabulary") == opened.task.vocabulary, kTokens, "vocabulary: got ",
            spec.keys.integer("vocabulary"), ", tokenizer ", spec.tokenizer, " has ", opened.task.vocabulary, ".");
  const int64_t n = opened.ids->size();
  opened.task.windows = windows_of(spec, n);
  const int64_t least = opened.task.windows.tail ? 2 : spec.context + 1;
  if (n < least)
    fail_with(ErrorCode::kData, kTokens, path, ": got ", n, spec.whole ? "" : concat(" of the file's ", opened.all),
              " ids", spec.whole ? "" : concat(" (split ", spec.split, ")"), ", expected at least ", least,
              " for context = ", spec.context, ". Take a longer file or a shorter context.");
  opened.task.where = kTokens;
  opened.task.name = spec.whole ? path : concat(path, " (", spec.split, ")");
  return token_dataset(std::move(opened.ids), std::move(opened.task));
}

}  // namespace bitgrad::data
