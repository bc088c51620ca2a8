// Stored ids: raw files, llm.c shards, and NAME.tokens.json, in which `bitgrad tokenize` describes its shards.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "data/token_source.h"

namespace bitgrad::data {

inline constexpr std::string_view kTokensEnd = ".tokens.json";

struct TokensRecord {
  std::shared_ptr<const Tokenizer> tokenizer = {};
  int64_t end = -1;  // id between documents; -1 if there is none
};
// Parses NAME.tokens.json. Throws Error(kData).
TokensRecord read_tokens_record(const std::string& path);
// Path of NAME.tokens.json beside a shard NAME_train_000000.bin or NAME_val_000000.bin; empty if there is none.
std::string tokens_record_of(const std::string& shard);

// Files that a path refers to: itself, or the matches of * and ? in its last component, sorted. Throws Error(kData) if
// there are none.
std::vector<std::string> matching_files(const std::string& path);

// Opens the ids of such a file. stored: "shard", "uint16" or "uint32". Throws Error(kData) if the file has a different
// format.
std::unique_ptr<TokenSource> open_token_file(const std::string& path, std::unique_ptr<InputFile> file,
                                             std::string_view stored, int64_t vocabulary);

}  // namespace bitgrad::data
