// Sequences of ids, in memory or in files, and the windows over them that are the samples of token data sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/tokenizer.h"

namespace bitgrad::data {

// A sequence of ids, in memory or read by position from a file.

// Const member functions may be called from several threads concurrently.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  // Writes ids begin .. begin+n-1, which must exist, to `to`. Throws Error(kData) for an id that is not below the
  // vocabulary.
  virtual void read(int64_t begin, int64_t n, int32_t* to) const = 0;
  // The ids in memory, dense; nullptr if they are read from a file.
  virtual const void* data() const { return nullptr; }
  virtual StoredAs form() const { return StoredAs::kInt32; }
  // Bytes that are kept in memory for them; those of the whole source for a part of one.
  virtual int64_t memory_bytes() const { return 0; }
};

// `n` ids in memory, of the size of the form (kUint8, kUint16 or kInt32).
std::unique_ptr<TokenSource> memory_tokens(TrackedBytes ids, StoredAs form);

// Little-endian ids of 2 or 4 bytes, starting at byte `offset` of a file; `name` is for messages. Nothing is kept in
// memory.
struct TokenFile {
  std::string name = {};
  int64_t offset = 0;
  int64_t id_bytes = 2;
  int64_t ids = 0;
  int64_t vocabulary = 0;
};
std::unique_ptr<TokenSource> file_tokens(std::unique_ptr<InputFile> file, const TokenFile& form);

// Concatenation of at least one source.
std::unique_ptr<TokenSource> joined_tokens(std::vector<std::unique_ptr<TokenSource>> parts);
// View of ids begin .. begin+n-1 of a source that reads from files.
std::unique_ptr<TokenSource> part_of_tokens(std::unique_ptr<TokenSource> all, int64_t begin, int64_t n);

// Sample i is the `context` ids starting at i * stride.
struct TokenWindows {
  int64_t context = 1;
  int64_t stride = 1;
  bool overlap = false;  // with a tail: in all samples but the first, only the last `stride` targets count
  bool each = true;      // the target is the next id at every position [context]; else only the id after the sample []
  bool tail = false;     // the last sample may be shorter; padded with id 0 and kIgnoredClass
  EpochOrder::Kind order = EpochOrder::Kind::kShuffled;
  int64_t epoch_samples = 0;  // samples drawn per epoch; 0: every sample once
};

struct TokenTask {
  std::string_view where = {};  // prefix of messages
  std::string name = {};
  int64_t vocabulary = 0;
  double bytes_per_target = 0;  // mean bytes of text per target; 0 if not known
  int64_t document_end = -1;    // Dataset::document_end
  TokenWindows windows = {};
  std::shared_ptr<const Tokenizer> tokenizer = {};
  // For targets at each position. mask: an id that is 0 here is no target; labels: what an id is as a target, another
  // id or kIgnoredClass.
  std::shared_ptr<const TokenSource> mask = {}, labels = {};
};

// `ids`: more than `context` ids; with a tail, at least 2.
std::unique_ptr<Dataset> token_dataset(std::unique_ptr<TokenSource> ids, TokenTask task);

// ---- labels of their own

// NAME.mask of a file NAME.bin; of another name, that with .mask behind it.
std::string mask_path(const std::string& ids);
// Bits of the ids in a file, 1 for targets: bit i % 8 of byte i / 8 of its mask_path. Throws Error(kData) if that is
// missing or of another size, or has bits behind the last id.
std::unique_ptr<TokenSource> open_mask_bits(const std::string& ids_path, int64_t ids);

struct LabelledTokens {
  std::unique_ptr<TokenSource> ids, labels = {};  // of one size; labels: ids below the vocabulary, or kIgnoredClass
};
// The arrays ids and labels [n] of an .npz archive. Throws Error(kData).
LabelledTokens open_labelled_tokens(const std::string& path, InputFile& file, int64_t vocabulary);

// ---- stored ids: raw files, llm.c shards, and NAME.tokens.json, in which `bitgrad tokenize` describes its shards

inline constexpr std::string_view kTokensEnd = ".tokens.json";

struct TokensRecord {
  std::shared_ptr<const Tokenizer> tokenizer = {};
  int64_t end = -1;  // id between documents; -1 if there is none
};
// Parses NAME.tokens.json. Throws Error(kData).
TokensRecord read_tokens_record(const std::string& path);
// Path of NAME.tokens.json beside a shard NAME_train_000000.bin or NAME_val_000000.bin; empty if there is none.
std::string tokens_record_of(const std::string& shard);

// Files that a path refers to: itself, or the matches of * and ? in its last component, sorted. Throws Error(kData)
// that begins with `where` if there are none.
std::vector<std::string> matching_files(std::string_view where, const std::string& path);

// Opens the ids of such a file. stored: "shard", "uint16" or "uint32". Throws Error(kData) if the file has a different
// format.
std::unique_ptr<TokenSource> open_token_file(const std::string& path, std::unique_ptr<InputFile> file,
                                             std::string_view stored, int64_t vocabulary);

}  // namespace bitgrad::data
