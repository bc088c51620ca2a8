// Parsed byte-level BPE settings of a Hugging Face tokenizer.json.
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

// Throws Error(kData) that names the member if the file is damaged or not byte-level BPE; JsonError for invalid JSON.
BpeParts read_bpe(const Json& file);

}  // namespace bitgrad::data
