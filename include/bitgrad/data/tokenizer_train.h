// Tokenizers made from texts: byte-level BPE, and the models of SentencePiece. Kinds: src/data/tokenizer_trainers.inc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/tokenizer.h"

namespace bitgrad {

struct TokenizerTraining {
  std::string kind = "byte_bpe";          // one of tokenizer_trainer_names()
  int64_t vocabulary = 0;                 // number of ids, special tokens and bytes among them
  std::vector<std::string> special = {};  // texts that are one token, such as <|endoftext|>; each once
  std::string split = {};                 // byte_bpe: how texts become words, gpt2 (the default) or qwen2
};

struct TokenizerTrainer {
  std::string name = {}, doc = {};
  std::string file_end = {};  // of the files that it writes: .json or .model
  bool splits = false;        // takes TokenizerTraining::split
};
const std::vector<TokenizerTrainer>& tokenizer_trainers();

struct TrainedTokenizer {
  std::string file = {};                            // what open_tokenizer reads: a tokenizer.json, or a .model
  std::shared_ptr<const Tokenizer> tokenizer = {};  // opened from it
  std::vector<std::string> notes = {};              // what the texts did not give or the trainer left out
};

// The text of a file, plain or gzip; of lines of JSON (.jsonl, .jsonl.gz) the members text, prompt, completion, and
// content of messages, each with a line end behind it. Throws Error(kData) for a file that is missing or empty, is no
// text, or is longer than 64 GiB, and with the line for contents that are no texts.
std::string training_text(const std::string& path);

// One text per document: no word crosses the end of one. Throws Error for an unknown kind, a vocabulary that does not
// hold the bytes and the special tokens, a special token that is empty, not UTF-8, given twice or already a token;
// Error(kData) for texts without a byte, and what SentencePiece says of texts that it cannot train on. byte_bpe makes
// the vocabulary and merges of BpeTrainer of the Python package tokenizers (src/data/bpe_train.cpp). The same texts
// give the same file for any number of threads.
TrainedTokenizer train_tokenizer(const TokenizerTraining& spec, const std::vector<std::string>& texts);

}  // namespace bitgrad
