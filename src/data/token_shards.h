// Stored ids: raw files, llm.c's shards, and what `bitgrad tokenize` says of its shards in NAME.tokens.json.
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
  int64_t end = -1;  // the id between documents; -1: none
};
// Of NAME.tokens.json. Error(kData).
TokensRecord read_tokens_record(const std::string& path);
// NAME.tokens.json beside a shard NAME_train_000000.bin or NAME_val_000000.bin; empty: there is none.
std::string tokens_record_of(const std::string& shard);

// The files that a path names: itself, or with * and ? in its last part those that fit, sorted. Error(kData): none.
std::vector<std::string> matching_files(const std::string& path);

// The ids of such a file. stored: "shard", "uint16" or "uint32". Error(kData) for another form.
std::unique_ptr<TokenSource> open_token_file(const std::string& path, std::unique_ptr<InputFile> file,
                                             std::string_view stored, int64_t vocabulary);

}  // namespace bitgrad::data
