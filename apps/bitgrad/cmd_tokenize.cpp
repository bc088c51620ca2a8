// bitgrad tokenize FILE... -o NAME --tokenizer chars|bytes|PATH [--val FRACTION] [--end TOKEN] [--force]: writes texts
// as shards of ids, NAME_train_000000.bin and so on and NAME_val_000000.bin, and NAME.tokens.json, which records how
// they were made.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/io/sha256.h"

#include "command.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

// Shards of ids in llm.c's format: 256 little-endian int32 (20240520, 1 for uint16 or 20240801, 7 for uint32; the
// number of ids), then the ids (karpathy/llm.c, dev/data/data_common.py).
// Keeps one shard in memory. Each file appears only when it is complete.
class ShardWriter {
 public:
  // Files are named prefix000000.bin, prefix000001.bin and so on. Ids are below `vocabulary`, and stored as uint16 if
  // that is at most 65536.
  ShardWriter(std::string prefix, int64_t vocabulary, int64_t shard_ids, bool force);
  void add(std::span<const int32_t> ids);
  // Writes the last shard and returns the paths of all, at least one.
  const std::vector<std::string>& finish();
  // Removes further shards of an earlier, longer call, which a file name pattern would match: when the new ones are in
  // place.
  void remove_further() const;
  int64_t ids() const { return ids_; }
  int64_t shards() const { return static_cast<int64_t>(paths_.size()); }

 private:
  std::string path_of(size_t shard) const;
  void write();
  std::string prefix_;
  size_t id_bytes_;
  int64_t shard_ids_;
  bool force_;
  int64_t ids_ = 0, open_ = 0;
  std::string bytes_;
  std::vector<std::string> paths_;
};

static_assert(std::endian::native == std::endian::little);

ShardWriter::ShardWriter(std::string prefix, int64_t vocabulary, int64_t shard_ids, bool force)
    : prefix_(std::move(prefix)), id_bytes_(vocabulary <= 65536 ? 2 : 4), shard_ids_(shard_ids), force_(force) {
  require_writable(prefix_ + "000000.bin", force_);
}

void ShardWriter::add(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    bytes_.append(reinterpret_cast<const char*>(&id), id_bytes_);
    ++ids_;
    if (++open_ == shard_ids_) write();
  }
}

const std::vector<std::string>& ShardWriter::finish() {
  if (open_ > 0 || paths_.empty()) write();
  return paths_;
}

void ShardWriter::remove_further() const {
  for (size_t i = paths_.size(); force_ && file_system().exists(path_of(i)); ++i) file_system().remove(path_of(i));
}

std::string ShardWriter::path_of(size_t shard) const {
  return concat(prefix_, std::setw(6), std::setfill('0'), shard, ".bin");
}

void ShardWriter::write() {
  const std::string path = path_of(paths_.size());
  require_writable(path, force_);
  std::array<int32_t, 256> head{id_bytes_ == 2 ? 20240520 : 20240801, id_bytes_ == 2 ? 1 : 7,
                                static_cast<int32_t>(open_)};
  write_file_atomically(path, [&](OutputFile& file) {
    file.write(head.data(), sizeof head);
    file.write(bytes_.data(), bytes_.size());
  });
  paths_.push_back(path);
  bytes_.clear();
  open_ = 0;
}

constexpr std::string_view kTokenize = "tokenize";
constexpr int64_t kMostTextBytes = int64_t{1} << 36;

struct TokenizeOptions {
  std::vector<std::string> files, plugins;
  std::string out, tokenizer, end;
  double val = 0;
  int64_t shard = 100'000'000;
  bool force = false;
};

std::string text_of_file(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path, kMostTextBytes);
  std::string text(bytes.begin(), bytes.end());
  require_text(kTokenize, path, text);
  return text;
}

// The ids of one split, which a ShardWriter collects.
struct Split {
  std::string name = {};
  ShardWriter writer;
  int64_t text_bytes = 0;
  int64_t documents = 0;
};

class Tokenizing {
 public:
  explicit Tokenizing(const TokenizeOptions& o) : o_(o) {
    for (const std::string& file : o_.files) {
      if (!file_system().exists(file))
        fail_with(ErrorCode::kData, kTokenize, "'", file, "': no such file, expected a text");
      total_ += file_system().open_read(file)->size();
    }
    if (total_ == 0)
      fail_with(ErrorCode::kData, kTokenize, "'", o_.files[0], "': got an empty text, expected at least one byte");
    require_writable(record_path(), o_.force);
  }

  int run() {
    FileGroup group;
    make();
    end_ = end_of(*tokenizer_);
    const auto cut = static_cast<int64_t>(static_cast<double>(total_) * (1.0 - o_.val));
    Split train{"train", writer_of("train")}, val{"val", writer_of("val")};
    int64_t at = 0;
    for (size_t i = 0; i < o_.files.size(); ++i) {
      const std::string text = texts_.empty() ? text_of_file(o_.files[i]) : std::move(texts_[i]);
      check_text(*tokenizer_, text, o_.files[i]);
      size_t here = static_cast<size_t>(std::clamp<int64_t>(cut - at, 0, std::ssize(text)));
      while (here > 0 && here < text.size() && (static_cast<uint8_t>(text[here]) & 0xC0) == 0x80) --here;
      add(train, o_.files[i], std::string_view(text).substr(0, here));
      add(val, o_.files[i], std::string_view(text).substr(here));
      at += std::ssize(text);
    }
    std::vector<Split*> splits{&train};
    if (o_.val > 0) splits.push_back(&val);
    write(splits);
    group.commit();
    for (Split* split : splits) split->writer.remove_further();
    print(splits);
    return 0;
  }

 private:
  std::string record_path() const { return o_.out + ".tokens.json"; }
  ShardWriter writer_of(const std::string& split) const {
    return ShardWriter(concat(o_.out, '_', split, '_'), tokenizer_->vocabulary(), o_.shard, o_.force);
  }

  void make() {
    if (is_tokenizer_file(o_.tokenizer)) {
      tokenizer_ = open_tokenizer(o_.tokenizer);
      return;
    }
    const std::vector<std::string> kinds = tokenizer_names();
    if (std::find(kinds.begin(), kinds.end(), o_.tokenizer) == kinds.end()) {
      const std::string other = why_no_model_file(o_.tokenizer);
      if (!other.empty())
        fail(kTokenize, "--tokenizer: '", o_.tokenizer, "' is not a tokenizer (.json, .model): it is ", other);
      fail(kTokenize, "--tokenizer: got a file with another end than .json or .model, or an ",
           unknown_name("tokenizer", o_.tokenizer, kinds));
    }
    std::string all;  // the source of the vocabulary
    for (const std::string& file : o_.files) all += texts_.emplace_back(text_of_file(file));
    tokenizer_ = make_tokenizer(o_.tokenizer, all);
  }

  int32_t end_of(const Tokenizer& tokenizer) const {
    if (o_.end.empty()) return tokenizer.end_id();
    for (int32_t id = 0; id < tokenizer.vocabulary(); ++id)
      if (tokenizer.bytes(id) == o_.end) return id;
    fail(kTokenize, "--end: got '", o_.end, "', which is not a token of ", describe(tokenizer));
  }

  void add(Split& split, const std::string& file, std::string_view text) {
    if (text.empty()) return;
    if (split.documents++ > 0 && end_ >= 0) split.writer.add({&end_, 1});
    split.text_bytes += std::ssize(text);
    try {
      tokenizer_->encode(text, [&](std::span<const int32_t> ids) { split.writer.add(ids); });
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kData) throw;
      fail_with(ErrorCode::kData, kTokenize, file, ": ", e.what());
    }
  }

  void write(const std::vector<Split*>& splits) {
    const Json tokenizer = tokenizer_record(*tokenizer_);
    const std::string text = tokenizer.dump();
    Json record{{"format_version", 1},
                {"sha256", sha256_hex(text.data(), text.size())},
                {"end", end_},
                {"vocabulary", tokenizer_->vocabulary()}};
    for (Split* split : splits) {
      Json shards = Json::array();
      for (const std::string& path : split->writer.finish()) shards.push_back(path.substr(path.rfind('/') + 1));
      record["splits"][split->name] = {{"ids", split->writer.ids()},
                                       {"text_bytes", split->text_bytes},
                                       {"documents", split->documents},
                                       {"shards", shards}};
    }
    record["tokenizer"] = tokenizer;
    write_file_atomically(record_path(), record.dump(1) + '\n');
  }

  void print(const std::vector<Split*>& splits) const {
    std::cout << describe(*tokenizer_) << '\n';
    for (const Split* split : splits)
      std::cout << split->name << ": " << split->writer.ids() << " ids of " << split->text_bytes << " bytes of text, "
                << split->writer.shards() << " shards\n";
    std::cout << "in a configuration: {format: tokens, stored: shard, file: " << printable(o_.out)
              << "_train_*.bin, context: 256}\n(paths that are relative start at data.root)\n";
  }

  const TokenizeOptions o_;
  int64_t total_ = 0;
  std::vector<std::string> texts_;  // kept from building the vocabulary
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t end_ = -1;
};

}  // namespace

Run setup_tokenize(Arguments& args) {
  auto o = std::make_shared<TokenizeOptions>();
  args.option("files", o->files, "UTF-8 texts, one document per file").required();
  args.option("-o,--out", o->out, "NAME of NAME_train_000000.bin, NAME_val_000000.bin and NAME.tokens.json").required();
  args.option("--tokenizer", o->tokenizer,
              "chars, bytes, or a file: tokenizer.json of Hugging Face (byte-level BPE), .model of SentencePiece, "
              "NAME.tokens.json")
      .required();
  args.option("--val", o->val, "fraction of the bytes to hold out for validation, from the end").range<double>(0, 0.9);
  args.option("--end", o->end, "token between documents; default: the tokenizer's own, if it has one");
  args.option("--shard", o->shard, "number of ids per shard").range<int64_t>(1, int64_t{1} << 30);
  args.flag("--force", o->force, "overwrite existing files");
  return [o] { return Tokenizing(*o).run(); };
}

}  // namespace bitgrad::cli
