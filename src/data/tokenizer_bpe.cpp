// Byte-level BPE: a text is split into words, the bytes of a word become ids, and merges join them (Radford et al.
// 2019, GPT-2).

#include <cstddef>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "bitgrad/base/error.h"
#include "data/bpe_file.h"
#include "data/tokenizer_text.h"
#include "data/tokenizers.h"

namespace bitgrad::data {

// Applies merges with a heap of candidates: O(n log n) for a word of n ids. Stale candidates, whose pair no longer
// exists, are dropped when they are popped.

namespace {

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct MergeCandidate {
  int64_t rank;
  size_t at;  // position of the left id
  uint64_t pair;
  int32_t merged;
  bool operator>(const MergeCandidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
};

}  // namespace

bool BpeMerges::add(int32_t left, int32_t right, int32_t merged) {
  return merges_.try_emplace(pair_key(left, right), Merge{size(), merged}).second;
}

const BpeMerges::Merge* BpeMerges::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<int32_t>& word) const {
  constexpr int32_t kGone = -1;
  const size_t n = word.size();
  if (n < 2) return;
  std::vector<size_t> next(n), before(n);  // n: no neighbor
  std::priority_queue<MergeCandidate, std::vector<MergeCandidate>, std::greater<>> candidates;
  const auto consider = [&](size_t left) {
    const size_t right = left < n ? next[left] : n;
    if (right >= n) return;
    if (const Merge* const merge = find(word[left], word[right]))
      candidates.push({merge->rank, left, pair_key(word[left], word[right]), merge->merged});
  };
  for (size_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    before[i] = i == 0 ? n : i - 1;
  }
  for (size_t i = 0; i < n; ++i) consider(i);
  while (!candidates.empty()) {
    const MergeCandidate top = candidates.top();
    candidates.pop();
    const size_t left = top.at, right = next[left];
    if (word[left] == kGone || right >= n || pair_key(word[left], word[right]) != top.pair) continue;
    word[left] = top.merged;
    word[right] = kGone;
    next[left] = next[right];
    if (next[right] < n) before[next[right]] = left;
    consider(before[left]);
    consider(left);
  }
  std::erase(word, kGone);
}

namespace {

// The steps from `index` on, of a piece that the earlier ones produced.
void each_word_of_step(const BpeParts& parts, size_t index, std::string_view text,
                       const std::function<void(std::string_view word)>& f) {
  if (text.empty()) return;
  if (index == parts.steps.size()) return f(text);
  const SplitStep& s = parts.steps[index];
  std::string spaced;
  if (s.prefix_space && text[0] != ' ') text = spaced = ' ' + std::string(text);
  if (s.pattern.empty()) return each_word_of_step(parts, index + 1, text, f);
  s.pattern[0].split(text, [&](std::string_view piece, bool match) {
    if (match ? s.keep_matches : s.keep_others) each_word_of_step(parts, index + 1, piece, f);
  });
}

}  // namespace

void each_word(const BpeParts& parts, std::string_view text, const std::function<void(std::string_view word)>& f) {
  each_word_of_step(parts, 0, text, f);
}

namespace {

constexpr std::string_view kBpe = "bpe";
constexpr size_t kKeptWords = 1 << 16, kLongestKept = 64;

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(Json file) : parts_(read_bpe(file)), file_(std::move(file)) {}

  std::string_view kind() const override { return kBpe; }
  int64_t vocabulary() const override { return std::ssize(parts_.tokens); }
  bool special(int32_t id) const override { return parts_.special[static_cast<size_t>(id)]; }
  int32_t end_id() const override { return parts_.end_id; }
  Json content() const override { return file_; }
  std::string_view bytes(int32_t id) const override {
    require(id >= 0 && id < vocabulary(), kBpe, "id: got ", id, ", expected 0 .. ", vocabulary() - 1);
    return parts_.tokens[static_cast<size_t>(id)];
  }
  void encode(std::string_view text, const Sink& sink) const override { Encoding(parts_, text, sink).run(true); }
  void encode_plain(std::string_view text, const Sink& sink) const override { Encoding(parts_, text, sink).run(false); }
  void split_special(std::string_view text, const Part& f) const override {
    parts_.raw_added.split(text, [&](std::string_view part, int32_t id) {
      if (id >= 0) return f(part, id);
      parts_.normal_added.split(part, f);
    });
  }

 private:
  // State of one call of encode.
  class Encoding {
   public:
    Encoding(const BpeParts& parts, std::string_view text, const Sink& sink) : p_(parts), text_(text), sink_(sink) {}
    // special: special tokens are read, too. Other added tokens are in any case.
    void run(bool special) {
      const auto taken = [&](int32_t id) { return special || !p_.special[static_cast<size_t>(id)]; };
      p_.raw_added.split_those(text_, taken, [&](std::string_view part, int32_t id) {
        if (id >= 0) return sink_({&id, 1});
        std::string normal;
        std::string_view words = part;
        for (const std::string& form : p_.normal_forms) words = normal = normal_form(words, form);
        p_.normal_added.split_those(words, taken, [&](std::string_view piece, int32_t added) {
          if (added >= 0) return sink_({&added, 1});
          each_word(p_, piece, [&](std::string_view w) { word(w); });
        });
      });
    }

   private:
    void word(std::string_view bytes) {
      if (bytes.size() > kLongestKept) return sink_(ids_of(bytes));
      key_ = bytes;
      if (const auto found = kept_.find(key_); found != kept_.end()) return sink_(found->second);
      if (kept_.size() >= kKeptWords) kept_.clear();
      sink_(kept_[key_] = ids_of(bytes));
    }

    std::vector<int32_t> ids_of(std::string_view bytes) const {
      if (!p_.words.empty())
        if (const auto whole = p_.words.find(std::string(bytes)); whole != p_.words.end()) return {whole->second};
      std::vector<int32_t> ids;
      for (const char c : bytes) {
        const int32_t id = p_.byte_ids[static_cast<uint8_t>(c)];
        if (id < 0)
          fail_with(ErrorCode::kData, kBpe, "byte ", static_cast<int>(static_cast<uint8_t>(c)), " of the word '", bytes,
                    "' has no token: the vocabulary has not all 256 bytes.");
        ids.push_back(id);
      }
      p_.merges.apply(ids);
      return ids;
    }

    const BpeParts& p_;
    std::string_view text_;
    const Sink& sink_;
    std::string key_;
    std::unordered_map<std::string, std::vector<int32_t>> kept_;  // words already encoded in this text
  };

  BpeParts parts_;
  Json file_;
};

}  // namespace

TokenizerPointer load_bpe_tokenizer(const Json& content) { return std::make_shared<BpeTokenizer>(content); }

TokenizerPointer open_bpe_tokenizer(std::string_view bytes) {
  constexpr int kDepth = 16;
  constexpr int64_t kMostValues = 6'000'000;  // 262,144 tokens with 515,000 merges have 1.8 million
  Json file = Json::parse(bytes, {.depth = kDepth, .unique_names = true, .values = kMostValues});
  if (file.is_object())
    for (const char* key : {"truncation", "padding"}) file.erase(key);
  return std::make_shared<BpeTokenizer>(std::move(file));
}

}  // namespace bitgrad::data
