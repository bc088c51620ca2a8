// Parsed byte-level BPE settings of a Hugging Face tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bitgrad/base/json.h"
#include "data/tokenizer_text.h"

namespace bitgrad::data {

// Byte-pair encoding: the merges of a word (Sennrich et al. 2016, arXiv:1508.07909).

class BpeMerges {
 public:
  // Adds merges in order of rank; a duplicate pair keeps its first rank. Returns false for a duplicate.
  bool add(int32_t left, int32_t right, int32_t merged);
  int64_t size() const { return static_cast<int64_t>(merges_.size()); }
  // Repeatedly joins the adjacent pair with the lowest rank (the leftmost on ties) until none is left.
  void apply(std::vector<int32_t>& word) const;

 private:
  struct Merge {
    int64_t rank;
    int32_t merged;
  };
  const Merge* find(int32_t left, int32_t right) const;
  std::unordered_map<uint64_t, Merge> merges_;
};

// One step of splitting a text into words. Steps apply in sequence, each to the pieces produced by the previous one.
struct SplitStep {
  std::vector<SplitPattern> pattern = {};  // at most one
  bool keep_others = true;                 // keep pieces that do not match
  bool keep_matches = true;
  bool prefix_space = false;  // insert a space before a piece that does not begin with one
};

struct BpeParts {
  std::vector<std::string> tokens = {};  // bytes by id; empty if the id has no token
  std::vector<bool> special = {};
  std::array<int32_t, 256> byte_ids = {};               // -1 if the byte has no id
  std::unordered_map<std::string, int32_t> words = {};  // whole words that are tokens; only with ignore_merges
  BpeMerges merges = {};
  AddedTokens raw_added = {}, normal_added = {};  // matched before and after the text is normalized
  std::vector<std::string> normal_forms = {};
  std::vector<SplitStep> steps = {};
  int32_t end_id = -1;
};

// Calls f for each word of a text that holds no added token, in order. The text is in its normal form.
void each_word(const BpeParts& parts, std::string_view text, const std::function<void(std::string_view word)>& f);

// The UTF-8 characters that represent bytes in the vocabulary: the byte itself if printable, else the next code point
// from 256 on (openai/gpt-2, src/encoder.py, bytes_to_unicode).
std::array<std::string, 256> byte_characters();

// Throws Error(kData) that names the member if the file is damaged or not byte-level BPE; JsonError for invalid JSON.
BpeParts read_bpe(const Json& file);

}  // namespace bitgrad::data
