// Token files: text encoded by a tokenizer, or ids stored by other programs.
//
// Samples are windows of `context` ids; targets are the next id at every position. order random: an epoch draws windows
// at any position (with replacement), as many as fit side by side. shuffled: the windows side by side, dropping the
// remainder at the end. sequential: the same front to back, with the remainder as a shorter last sample.
//
// Documents are concatenated, with an end id after each but the last. documents: joined reads across their borders;
// apart restricts attention to a position's own document (Dataset::document_end). Targets and positions are the same in
// both: an end id predicts the first id of the next document, as in nanoGPT and llm.c.
#include <algorithm>
#include <array>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/token_dataset.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kTokensData = "data.tokens";

// The whole content of the file that `key` refers to, plain or gzip.
std::string read_text(const DatasetSpec& spec, const std::string& key, const std::string& file) {
  const std::string path = data_path(spec.root, file);
  const std::unique_ptr<InputFile> opened = open_data_file(kTokensData, spec, key, file, "a text");
  std::string text = ContentReader(path, *opened).rest();
  require_text(kTokensData, path, std::string_view(text).substr(0, size_t{1} << 20));
  return text;
}

// Adds this file's name to errors from `use`.
template <typename Use>
auto of_file(const std::string& path, Use use) {
  try {
    return use();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData) throw;
    fail_with(ErrorCode::kData, kTokensData, path, ": ", e.what());
  }
}

// Range of this data set's ids within the file.
struct IdRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
IdRange range_of(const DatasetSpec& spec, int64_t ids) {
  if (spec.whole) return {0, ids};
  const auto [begin, end] = text_range(spec, ids);
  return {begin, end};
}

// Encoded ids, stored in the fewest bytes that hold them.
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

// Mean bytes of text per target: over the ids after the first, at most the first 2^27 of them.
double bytes_per_target(const TokenSource& ids, const Tokenizer& tokenizer) {
  constexpr int64_t kCounted = int64_t{1} << 27;
  std::vector<int64_t> sizes;
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id)
    sizes.push_back(tokenizer.special(id) ? 0 : std::ssize(tokenizer.bytes(id)));
  std::array<int32_t, 4096> piece;
  int64_t bytes = 0;
  const int64_t end = std::min(ids.size(), kCounted);
  for (int64_t at = 1; at < end; at += std::ssize(piece)) {
    const int64_t n = std::min<int64_t>(std::ssize(piece), end - at);
    ids.read(at, n, piece.data());
    for (int64_t i = 0; i < n; ++i)
      if (const auto id = static_cast<size_t>(piece[static_cast<size_t>(i)]); id < sizes.size()) bytes += sizes[id];
  }
  return end < 2 ? 0 : static_cast<double>(bytes) / static_cast<double>(end - 1);
}

void require_same(std::string_view where, const Tokenizer& a, const std::string& a_name, const Tokenizer& b,
                  const std::string& b_name) {
  if (const std::string parts = tokenizer_difference(a, b); !parts.empty())
    fail_with(ErrorCode::kData, where, "tokenizer: ", a_name, " and ", b_name, " differ: ", parts, '.');
}

// Tokenizer for a text. If the model has one, it is used, and data.tokenizer must not differ.
std::shared_ptr<const Tokenizer> tokenizer_of_text(const DatasetSpec& spec, const std::string& path,
                                                   const std::string& text) {
  if (spec.of_model != nullptr) return tokenizer_of_model(kTokensData, spec);
  if (is_tokenizer_file(spec.tokenizer)) return open_tokenizer(data_path(spec.root, spec.tokenizer));
  const std::string& other = spec.vocabulary_file;
  if (other.empty() || other == spec.file) return of_file(path, [&] { return make_tokenizer(spec.tokenizer, text); });
  const std::string words = read_text(spec, "vocabulary_file", other);
  return of_file(data_path(spec.root, other), [&] { return make_tokenizer(spec.tokenizer, words); });
}

// The id that separates documents for documents: apart. stored_end: from NAME.tokens.json, -1 if not given.
int64_t document_end(const DatasetSpec& spec, const TokenTask& task, int64_t stored_end) {
  const int64_t given = spec.keys.integer("end");
  if (spec.keys.text("documents") != "apart") {
    require(given < 0, kTokensData, "end: got ", given, " with documents: joined, expected documents: apart.");
    return -1;
  }
  require(given < task.vocabulary, kTokensData, "end: got ", given, ", expected an id below ", task.vocabulary, '.');
  const int64_t own = task.tokenizer != nullptr ? task.tokenizer->end_id() : -1;
  const int64_t end = given >= 0 ? given : stored_end >= 0 ? stored_end : own;
  require(end >= 0, kTokensData,
          "documents: apart needs the id that ends a document: the tokenizer has none, and no NAME", kTokensEnd,
          " that names one. Give it as end: ID.");
  return end;
}

struct Opened {
  std::unique_ptr<TokenSource> ids;
  int64_t all = 0;  // ids in the file
  TokenTask task = {};
};

Opened open_text(const DatasetSpec& spec) {
  const std::string path = data_path(spec.root, spec.file), text = read_text(spec, "file", spec.file);
  Opened out;
  const std::shared_ptr<const Tokenizer> tokenizer = out.task.tokenizer = tokenizer_of_text(spec, path, text);
  out.task.vocabulary = tokenizer->vocabulary();
  out.task.document_end = document_end(spec, out.task, -1);
  NarrowIds ids(out.task.vocabulary);
  check_text(*tokenizer, text, path);
  of_file(path, [&] { return tokenizer->encode(text, [&](std::span<const int32_t> run) { ids.add(run); }); });
  out.all = ids.size();
  out.ids = ids.part(range_of(spec, out.all));
  out.task.bytes_per_target = bytes_per_target(*out.ids, *tokenizer);
  return out;
}

// Tokenizer of stored ids, from data.tokenizer, the shards' NAME.tokens.json (at `path`; empty if there is none) and
// the model that will read them; nullptr if none of them gives one.
std::shared_ptr<const Tokenizer> tokenizer_of_ids(const DatasetSpec& spec, const std::string& stored,
                                                  const std::string& path,
                                                  const std::shared_ptr<const Tokenizer>& packed) {
  if (spec.tokenizer.empty()) return packed;
  if (const bool file = is_tokenizer_file(spec.tokenizer); file || spec.tokenizer == "bytes") {
    auto given = file ? open_tokenizer(data_path(spec.root, spec.tokenizer)) : make_tokenizer("bytes", "");
    if (packed != nullptr)
      require_same(kTokensData, *given, concat("data.tokenizer (", spec.tokenizer, ')'), *packed, path);
    return given;
  }
  require(packed != nullptr, kTokensData, "tokenizer: got ", spec.tokenizer, " for a file stored as ", stored,
          ": it holds ids, no text. Without NAME", kTokensEnd, " beside it, of `bitgrad tokenize`, expected a file.");
  if (packed->kind() != spec.tokenizer)
    fail_with(ErrorCode::kData, kTokensData, "tokenizer: got ", spec.tokenizer, ", ", path, " has ", describe(*packed),
              '.');
  return packed;
}

// One byte for each of the `all` ids of data.file, cut as they are.
std::shared_ptr<const TokenSource> read_mask(const DatasetSpec& spec, int64_t all) {
  const std::string name = spec.keys.text("mask"), path = data_path(spec.root, name);
  const std::unique_ptr<InputFile> file = open_data_file(kTokensData, spec, "mask", name, "a file of bytes");
  if (file->size() != all)
    fail_with(ErrorCode::kData, kTokensData, path, ": got ", file->size(), " bytes, expected one for each of the ", all,
              " ids of ", spec.file, '.');
  const IdRange range = range_of(spec, all);
  TrackedBytes bytes(range.size(), MemoryKind::kDataset);
  file->read_at(range.begin, bytes.data(), static_cast<size_t>(bytes.size()));
  return memory_tokens(std::move(bytes), StoredAs::kUint8);
}

// The ids of all files that data.file names, and the bits of their masks if these are the labels.
LabelledTokens open_files(const DatasetSpec& spec, const std::vector<std::string>& files, const std::string& stored,
                          int64_t vocabulary) {
  const bool one = files[0] == data_path(spec.root, spec.file);
  DatasetSpec named = spec;  // files matched by a pattern have a complete path
  if (!one) named.root = "";
  std::vector<std::unique_ptr<TokenSource>> ids, bits;
  for (const std::string& path : files) {
    auto file = open_data_file(kTokensData, named, "file", one ? spec.file : path, "a file of ids");
    if (stored == "npz") {
      require(files.size() == 1, kTokensData, "file: got ", files.size(), " files for '", spec.file,
              "', expected one .npz archive.");
      return open_labelled_tokens(path, *file, vocabulary);
    }
    ids.push_back(open_token_file(path, std::move(file), stored, vocabulary));
    if (!spec.labels.empty()) bits.push_back(open_mask_bits(path, ids.back()->size()));
  }
  return {joined_tokens(std::move(ids)), bits.empty() ? nullptr : joined_tokens(std::move(bits))};
}

Opened open_ids(const DatasetSpec& spec, const std::string& stored) {
  const std::string path = data_path(spec.root, spec.file);
  const std::vector<std::string> files = matching_files(kTokensData, path);
  Opened out;
  const std::string record_path = tokens_record_of(files[0]);
  const TokensRecord record = record_path.empty() ? TokensRecord{} : read_tokens_record(record_path);
  out.task.tokenizer = tokenizer_of_ids(spec, stored, record_path, record.tokenizer);
  const int64_t given = spec.keys.integer("vocabulary");
  const int64_t known = out.task.tokenizer == nullptr ? 0 : out.task.tokenizer->vocabulary();
  require(given > 0 || known > 0, kTokensData,
          "vocabulary: got none, expected the number of different ids, which a file stored as ", stored,
          " does not say.");
  require(given == 0 || given >= known, kTokensData, "vocabulary: got ", given, ", expected at least ", known,
          " for tokenizer ", known == 0 ? "" : describe(*out.task.tokenizer), '.');
  out.task.vocabulary = std::max(given, known);
  out.task.document_end = document_end(spec, out.task, record.end);
  LabelledTokens opened = open_files(spec, files, stored, out.task.vocabulary);
  out.ids = std::move(opened.ids);
  out.all = out.ids->size();
  if (const IdRange range = range_of(spec, out.all); range.size() != out.all) {
    out.ids = part_of_tokens(std::move(out.ids), range.begin, range.size());
    if (opened.labels != nullptr) opened.labels = part_of_tokens(std::move(opened.labels), range.begin, range.size());
  }
  if (spec.keys.contains("mask"))
    out.task.mask = read_mask(spec, out.all);
  else if (opened.labels != nullptr)
    (stored == "npz" ? out.task.labels : out.task.mask) = std::move(opened.labels);
  else if (out.task.tokenizer != nullptr)
    out.task.bytes_per_target = bytes_per_target(*out.ids, *out.task.tokenizer);
  return out;
}

// Labels of their own: by data.labels, by mask, or in the archive.
void check_labels(const DatasetSpec& spec, const std::string& stored) {
  const bool mask = spec.keys.contains("mask");
  require(stored != "text" || !mask, kTokensData,
          "mask: it is for stored ids, a text has none before it is tokenized. See bitgrad tokenize.");
  require(spec.labels.empty() || spec.labels == "mask", kTokensData, "labels: got '", spec.labels,
          "', expected mask (the bits of NAME.mask beside each file NAME.bin).");
  require(stored != "text" || spec.labels.empty(), kTokensData,
          "labels: mask is for stored ids, a text has none before it is tokenized. See bitgrad tokenize.");
  require(spec.labels.empty() || !mask, kTokensData, "got labels: mask and mask: ", mask ? spec.keys.text("mask") : "",
          ", expected one of them.");
  require(stored != "npz" || (spec.labels.empty() && !mask), kTokensData, spec.labels.empty() ? "mask" : "labels",
          ": an .npz archive has the array labels. Leave the key out.");
}

TokenWindows windows_of(const DatasetSpec& spec, int64_t ids) {
  using Kind = EpochOrder::Kind;
  const std::string order = spec.keys.contains("order") ? spec.keys.text("order")
                            : spec.split == "train"     ? "shuffled"
                                                        : "sequential";
  TokenWindows w;
  w.context = spec.context;
  w.order = order == "random" ? Kind::kRandom : order == "shuffled" ? Kind::kShuffled : Kind::kSequential;
  w.tail = w.order == Kind::kSequential;
  w.stride = w.order == Kind::kRandom ? 1 : spec.context;
  if (const int64_t stride = spec.keys.integer("stride"); stride > 0) {
    require(w.tail && stride <= spec.context, kTokensData, "stride: got ", stride, " for order ", order,
            ", expected order sequential and at most context = ", spec.context, '.');
    w.overlap = stride < spec.context;
    w.stride = stride;
  }
  if (w.order == Kind::kRandom) w.epoch_samples = std::max<int64_t>(1, (ids - 1) / spec.context);
  return w;
}

}  // namespace

Key vocabulary_key() {
  return {.name = "vocabulary",
          .type = Key::Type::kInt,
          .range = "[0, 16777216]",
          .standard = "0",
          .doc =
              "number of different ids; 0: of tokens, that of the tokenizer, required for stored ids without one; of "
              "arrays, num of the embedding that reads them"};
}

Key end_key() {
  return {.name = "end",
          .type = Key::Type::kInt,
          .range = "[-1, 16777215]",
          .standard = "-1",
          .doc =
              "the id that ends a document, of tokens with documents apart, of jsonl that behind a conversation; -1: "
              "that of NAME.tokens.json beside shards, else the tokenizer's, of jsonl another special token if "
              "conversations hold it"};
}

std::shared_ptr<const Tokenizer> tokenizer_of_model(std::string_view where, const DatasetSpec& spec) {
  const std::shared_ptr<const Tokenizer>& model = spec.of_model;
  if (is_tokenizer_file(spec.tokenizer)) {
    const std::string path = data_path(spec.root, spec.tokenizer);
    if (file_system().exists(path)) require_same(where, *open_tokenizer(path), spec.tokenizer, *model, "the model's");
  } else if (!spec.tokenizer.empty() && spec.tokenizer != model->kind()) {
    fail_with(ErrorCode::kData, where, "tokenizer: got ", spec.tokenizer, ", the model was trained with ",
              describe(*model), '.');
  }
  return model;
}

std::vector<Key> tokens_keys() {
  using Type = Key::Type;
  return {
      {.name = "stored",
       .type = Type::kChoice,
       .standard = "text",
       .doc = "what the file holds. text: text, plain or .gz, for data.tokenizer; uint16, uint32: little-endian ids "
              "back to back, as nanoGPT writes them; shard: llm.c's files, read on demand as these; npz: an archive of "
              "arrays ids and labels [n], a label is the id as a target, another id, or -100 for none",
       .choices = {"text", "uint16", "uint32", "shard", "npz"}},
      vocabulary_key(),
      {"stride", Type::kInt, "[0, 1048576]", "0",
       "order sequential: stride between windows in tokens; only the last `stride` tokens of each but the first are "
       "scored; 0: context, non-overlapping windows"},
      {.name = "mask",
       .type = Type::kText,
       .standard = "",
       .doc = "stored ids: a file with a byte for each id; an id whose byte is 0 is read but is not a target, such as "
              "in a prompt"},
      {.name = "order",
       .type = Type::kChoice,
       .doc = "sampling order. random: windows at random offsets, as many as fit without overlap; shuffled: the "
              "non-overlapping windows; sequential: the same in order, then the rest. Default: shuffled, sequential "
              "under data.valid and data.test",
       .choices = {"random", "shuffled", "sequential"}},
      {.name = "documents",
       .type = Type::kChoice,
       .standard = "joined",
       .doc = "what attention sees. joined: the whole window; apart: the own document, up to the end id before it",
       .choices = {"joined", "apart"}},
      end_key()};
}

std::unique_ptr<Dataset> make_tokens_dataset(const DatasetSpec& spec) {
  check_text_keys(kTokensData, spec);
  const std::string stored = spec.keys.text("stored"), path = data_path(spec.root, spec.file);
  if (stored == "text")
    require(!spec.tokenizer.empty() || spec.of_model != nullptr, kTokensData,
            "tokenizer: got none, expected one for a text, such as chars or bytes.");
  check_labels(spec, stored);
  Opened opened = stored == "text" ? open_text(spec) : open_ids(spec, stored);
  if (stored == "text" && spec.keys.integer("vocabulary") != 0)
    require(spec.keys.integer("vocabulary") == opened.task.vocabulary, kTokensData, "vocabulary: got ",
            spec.keys.integer("vocabulary"), ", tokenizer ", spec.tokenizer, " has ", opened.task.vocabulary, ".");
  const int64_t n = opened.ids->size();
  opened.task.windows = windows_of(spec, n);
  const int64_t least = opened.task.windows.tail ? 2 : spec.context + 1;
  if (n < least)
    fail_with(ErrorCode::kData, kTokensData, path, ": got ", n, spec.whole ? "" : concat(" of the file's ", opened.all),
              " ids", spec.whole ? "" : concat(" (split ", spec.split, ")"), ", expected at least ", least,
              " for context = ", spec.context, ". Take a longer file or a shorter context.");
  opened.task.where = kTokensData;
  opened.task.name = spec.whole ? path : concat(path, " (", spec.split, ")");
  return token_dataset(std::move(opened.ids), std::move(opened.task));
}

}  // namespace bitgrad::data
