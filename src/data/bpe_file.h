// What a tokenizer.json of Hugging Face says of byte-level BPE.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "bitgrad/base/json.h"
#include "data/added_tokens.h"
#include "data/bpe_merges.h"
#include "data/split_pattern.h"

namespace bitgrad::data {

// One step of cutting a text into words; steps apply one after the other, each to the pieces of those before.
struct SplitStep {
  std::vector<SplitPattern> pattern = {};  // none or one
  bool keep_others = true;                 // pieces that are no match stay
  bool keep_matches = true;
  bool prefix_space = false;  // a space before a piece that does not begin with one
};

struct BpeParts {
  std::vector<std::string> tokens = {};  // bytes by id; empty: no token
  std::vector<bool> special = {};
  std::array<int32_t, 256> byte_ids = {};               // -1: none
  std::unordered_map<std::string, int32_t> words = {};  // whole words that are a token; only with ignore_merges
  BpeMerges merges = {};
  AddedTokens raw_added = {}, normal_added = {};  // found before and after the text is normalized
  std::vector<std::string> normal_forms = {};
  std::vector<SplitStep> steps = {};
  int32_t end_id = -1;
};

// Error(kData) that names the member, for what is damaged and for what is not byte-level BPE; JsonError.
BpeParts read_bpe(const Json& file);

}  // namespace bitgrad::data
