// Byte-level BPE from texts. The rule of the Python package tokenizers (BpeTrainer), whose vocabulary and merges this
// makes: ids are the special tokens, the characters of the 256 bytes by code point, then the merges. The pair that
// occurs most, in words counted as often as they occur, is merged next; of several the one of the smaller left id, then
// the smaller right id. A merge whose text is a token already keeps that id.
#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "data/bpe_file.h"
#include "data/tokenizer_train.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kWhere = "tokenizer train";
constexpr int64_t kBytes = 256;

struct Split {
  std::string_view name;
  const char *normalizer, *pre_tokenizer;
};
// gpt2: openai/gpt-2, src/encoder.py. qwen2: tokenizer.json of Qwen2: digits are words of their own, line ends too.
constexpr Split kSplits[] = {
    {"gpt2", "null", R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})"},
    {"qwen2", R"({"type":"NFC"})",
     R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]})"},
};

struct Pair {
  int32_t left = 0, right = 0;
  friend bool operator==(const Pair&, const Pair&) = default;
  friend bool operator<(const Pair& a, const Pair& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); }
};
struct PairHash {
  size_t operator()(const Pair& p) const {
    return std::hash<uint64_t>{}(uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right));
  }
};
// A pair with the count that it had when it was queued, and the words where it appeared then.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<size_t> words;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : b.pair < a.pair;
  }
};

class BpeTraining {
 public:
  explicit BpeTraining(const std::vector<std::string>& special) {
    for (const std::string& token : special) id_of(token);
    std::vector<std::pair<std::string, size_t>> characters;
    const std::array<std::string, 256> all = byte_characters();
    for (size_t byte = 0; byte < all.size(); ++byte) characters.emplace_back(all[byte], byte);
    std::sort(characters.begin(), characters.end());  // UTF-8 sorts by code point
    for (const auto& [text, byte] : characters) {
      require(ids_.find(text) == ids_.end(), kWhere, "special: got '", text, "', which is the token of a byte");
      byte_ids_[byte] = id_of(text);
    }
  }

  void add_word(std::string_view bytes, int64_t count) {
    std::vector<int32_t>& word = words_.emplace_back();
    for (const char c : bytes) word.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    counts_.push_back(count);
    for (size_t i = 0; i + 1 < word.size(); ++i) change({word[i], word[i + 1]}, 1, words_.size() - 1);
  }

  void merge_until(int64_t vocabulary) {
    queue_changes();
    while (std::ssize(tokens_) < vocabulary && !queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      Candidate top = std::move(queue_.back());
      queue_.pop_back();
      if (const int64_t now = pairs_[top.pair]; top.count != now) {
        top.count = now;
        push(std::move(top));
        continue;
      }
      const int32_t merged =
          id_of(tokens_[static_cast<size_t>(top.pair.left)] + tokens_[static_cast<size_t>(top.pair.right)]);
      merges_.push_back(top.pair);
      for (const size_t word : top.words) merge(word, top.pair, merged);
      queue_changes();
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  // A pair that was merged twice has the later rank, as the package writes it.
  std::vector<Pair> merges() const {
    std::unordered_map<Pair, size_t, PairHash> last;
    for (size_t i = 0; i < merges_.size(); ++i) last[merges_[i]] = i;
    std::vector<Pair> out;
    for (size_t i = 0; i < merges_.size(); ++i)
      if (last[merges_[i]] == i) out.push_back(merges_[i]);
    return out;
  }

 private:
  int32_t id_of(const std::string& text) {
    const auto [at, added] = ids_.try_emplace(text, static_cast<int32_t>(tokens_.size()));
    if (added) tokens_.push_back(text);
    return at->second;
  }
  void change(Pair pair, int64_t by, size_t word) {
    pairs_[pair] += by * counts_[word];
    if (by < 0) return;
    std::vector<size_t>& places = places_[pair];
    if (places.empty() || places.back() != word) places.push_back(word);
  }
  void push(Candidate candidate) {
    if (candidate.count <= 0) return;
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }
  void queue_changes() {
    for (auto& [pair, words] : places_) push({pairs_[pair], pair, std::move(words)});
    places_.clear();
  }
  void merge(size_t at, Pair pair, int32_t merged) {
    std::vector<int32_t>& word = words_[at];
    std::vector<int32_t> out;
    for (size_t i = 0; i < word.size(); ++i) {
      if (i + 1 == word.size() || Pair{word[i], word[i + 1]} != pair) {
        out.push_back(word[i]);
        continue;
      }
      if (!out.empty()) {
        change({out.back(), pair.left}, -1, at);
        change({out.back(), merged}, 1, at);
      }
      if (i + 2 < word.size()) {
        change({pair.right, word[i + 2]}, -1, at);
        change({merged, word[i + 2]}, 1, at);
      }
      out.push_back(merged);
      ++i;
    }
    word = std::move(out);
  }

  std::vector<std::string> tokens_;  // by id, in the characters of bytes
  std::unordered_map<std::string, int32_t> ids_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<std::vector<int32_t>> words_;
  std::vector<int64_t> counts_;  // of words
  std::unordered_map<Pair, int64_t, PairHash> pairs_;
  std::unordered_map<Pair, std::vector<size_t>, PairHash> places_;  // words with a pair that is new there
  std::vector<Candidate> queue_;                                    // a heap
  std::vector<Pair> merges_;
};

// tokenizer.json of these tokens, in the order of its members there.
std::string file_of(const Split& split, const std::vector<std::string>& special, const std::vector<std::string>& tokens,
                    const std::vector<Pair>& merges) {
  Json added = Json::array();
  for (size_t id = 0; id < special.size(); ++id)
    added.push_back({{"id", id},
                     {"content", special[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  std::string vocabulary, pairs;
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  for (size_t id = 0; id < tokens.size(); ++id) vocabulary += concat(id > 0 ? "," : "", quoted(tokens[id]), ':', id);
  for (const Pair& pair : merges)
    pairs += concat(pairs.empty() ? "" : ",", '[', quoted(tokens[static_cast<size_t>(pair.left)]), ',',
                    quoted(tokens[static_cast<size_t>(pair.right)]), ']');
  return concat(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)", added.dump(),
                R"(,"normalizer":)", split.normalizer, R"(,"pre_tokenizer":)", split.pre_tokenizer,
                R"(,"post_processor":null,"decoder":)",
                R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":)",
                R"({"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)",
                R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)",
                vocabulary, R"(},"merges":[)", pairs, "]}}\n");
}

}  // namespace

std::string train_byte_bpe(const TokenizerTraining& spec, const std::vector<std::string>& texts,
                           std::vector<std::string>&) {
  const auto* const split = std::find_if(std::begin(kSplits), std::end(kSplits), [&](const Split& s) {
    return s.name == (spec.split.empty() ? kSplits[0].name : spec.split);
  });
  require(split != std::end(kSplits), kWhere, "split: got '", spec.split, "', expected ",
          joined(kSplits, " or ", &Split::name));
  const int64_t least = kBytes + std::ssize(spec.special);
  require(spec.vocabulary >= least, kWhere, "vocabulary: got ", spec.vocabulary, ", expected at least ", least, ": ",
          kBytes, " bytes and ", spec.special.size(), " special tokens");
  BpeTraining training(spec.special);
  // The words of the texts are those that the tokenizer will see.
  const BpeParts parts = read_bpe(Json::parse(file_of(*split, {}, BpeTraining({}).tokens(), {})));
  std::unordered_map<std::string, int64_t> words;
  for (const std::string& text : texts) {
    std::string normal = text;
    for (const std::string& form : parts.normal_forms) normal = normal_form(normal, form);
    each_word(parts, normal, [&](std::string_view word) { ++words[std::string(word)]; });
  }
  for (const auto& [word, count] : words) training.add_word(word, count);
  training.merge_until(spec.vocabulary);
  return file_of(*split, spec.special, training.tokens(), training.merges());
}

}  // namespace bitgrad::data
