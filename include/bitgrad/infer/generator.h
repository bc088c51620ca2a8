// Generator: feeds ids to a language model and returns the scores of the next one. docs/numerics.md section 10,
// "Generation".
//
//   const auto model = load_evaluator(config, data, file);   // or load_evaluator(file, loss)
//   Generator generator(*model);
//   std::span<const float> scores = generator.feed(encode(*tokenizer, "To be"));
//   for (int64_t i = 0; i < 20; ++i) {
//     const int32_t id = sample_token(scores, generator.ids(), {.temperature = 0.8}, 0, generator.length());
//     scores = generator.feed({&id, 1});
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/kv_cache.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// Sampling: picks the next token id from a language model's scores. docs/numerics.md section 10, "Sampling".

// Applied in this order, in double precision.
struct SamplingSpec {
  // Applied to ids that occurred before: l / penalty if l > 0, else l * penalty (Keskar et al. 2019, arXiv 1909.05858,
  // section 4.1). 1: off.
  double repetition_penalty = 1;
  double temperature = 1;  // scores / temperature; 0: greedy, ties go to the lowest id
  int64_t top_k = 0;       // keep the k largest scores, ties go to lower ids; 0: all
  // Keep the most probable ids (ties: lower ids first) until their sum reaches p (Holtzman et al. 2020, arXiv
  // 1904.09751, section 3.1). 1: all.
  double top_p = 1;
  // keep ids with at least min_p times the largest probability (Nguyen et al. 2024, arXiv 2407.01082)
  double min_p = 0;
  uint64_t seed = 0;  // of the draw: purpose kToken, id = sample, element = position
};
// Throws Error for values out of range: repetition_penalty in (0, 1e6], temperature and top_k >= 0, top_p in (0, 1],
// min_p in [0, 1].
void check_sampling(const SamplingSpec& spec);

struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
};
// Returns the ids that may be drawn, in ascending order, with probabilities that sum to 1. `scores` are for ids 0 .. n
// - 1, n >= 1; throws Error(kNonFinite) if one is not finite. `before`: earlier ids in any order, repetitions allowed.
std::vector<TokenProbability> token_probabilities(std::span<const float> scores, std::span<const int32_t> before,
                                                  const SamplingSpec& spec);
// Draws one id. A pure function of its arguments. `sample` tells apart several texts of one seed, below 2^32;
// `position` is that of the token in its sequence.
int32_t sample_token(std::span<const float> scores, std::span<const int32_t> before, const SamplingSpec& spec,
                     int64_t sample, int64_t position);

class StreamedText;

struct GeneratorSpec {
  // Keeps keys and values of earlier rows, so that each new id costs one row. false: each id recomputes all rows of the
  // window, with the same bits if `kv` is fp32. Models without causal attention never cache.
  bool cache = true;
  KvKind kv = KvKind::kFp32;
};

class Generator {
 public:
  // `learner` must be planned for ids [context] and return scores for each position, [context, vocabulary]; otherwise
  // throws Error that says what is needed. It is not owned and must outlive the generator; its state().sequence is used
  // during calls. Plans layouts for single rows.
  explicit Generator(Learner& learner, const GeneratorSpec& spec = {});

  int64_t context() const { return context_; }  // maximum number of rows the model sees at once
  int64_t vocabulary() const { return vocabulary_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t dropped() const { return window_; }  // ids before the window, which the model no longer sees
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }

  // Appends one or more ids and returns the scores [vocabulary] of what follows the last one, on the host, valid until
  // the next call. They depend on the ids only, not on how these were split into calls. Beyond `context` the window
  // moves: the last context / 2 ids are recomputed at positions from 0 on, and ids are appended until it is full again.
  // All ids of the window count as one text, even if the data kept documents apart. Throws Error for an id out of
  // range, and as Learner::predict; the ids are unchanged then.
  std::span<const float> feed(std::span<const int32_t> ids);
  // The same in parts, for a caller that may stop between them: append, then read until it returns true. scores() are
  // those of the ids read last.
  void append(std::span<const int32_t> ids);
  bool read();
  std::span<const float> scores() const { return scores_; }
  // Drops ids from `length` on; cached rows of the others are kept if the window is the same. Throws Error if length is
  // out of range.
  void truncate(int64_t length);

  // Size of the cached keys and values.
  int64_t cache_bytes() const { return caches_ ? caches_->bytes() : 0; }
  bool cached() const { return caches_ != nullptr; }

 private:
  int64_t window_of(int64_t position) const;
  Tensor read_rows(int64_t begin, int64_t end, int64_t first);

  Learner& learner_;
  int64_t context_ = 0, vocabulary_ = 0;
  std::shared_ptr<KvCaches> caches_;  // nullptr: no cache
  std::vector<int32_t> ids_;
  int64_t window_ = 0, rows_ = 0;  // ids window_ .. window_ + rows_ - 1 are cached
  std::vector<float> scores_;
};

// Why generation ended.
enum class StopReason : uint8_t { kTokens, kEnd, kStop };
std::string_view stop_reason_name(StopReason reason);  // "tokens", "end_of_text", "stop"

struct GenerateSpec {
  int64_t tokens = 256;  // maximum number
  SamplingSpec sampling = {};
  int64_t sample = 0;             // distinguishes several texts of one seed
  std::vector<int32_t> end = {};  // ids that end the text (end_ids of interop/model_origin.h); empty: the tokenizer's
  std::vector<std::string> stop = {};  // the text ends before the first of these; no empty strings; needs a tokenizer
};
struct Generated {
  std::vector<int32_t> ids = {};  // drawn ids, including the one that ended the text
  std::string text = {};          // UTF-8, without the stop text; empty without a tokenizer
  StopReason reason = StopReason::kTokens;
};
// Ids that may be drawn: those of a padded vocabulary that the tokenizer has no token for are not.
int64_t drawn_ids(int64_t vocabulary, const Tokenizer* tokenizer);
// Writes one text id by id, starting from `scores`, those of the generator's last feed. `tokenizer` may be nullptr to
// get ids only; its end_id ends the text. Both must outlive this object.
class Continuation {
 public:
  Continuation(Generator& generator, std::span<const float> scores, const Tokenizer* tokenizer, GenerateSpec spec);
  ~Continuation();
  Continuation(const Continuation&) = delete;
  Continuation& operator=(const Continuation&) = delete;
  // Draws the next id. `text`: what it completed, in whole characters (StreamedText); finally id -1 with any
  // text held back. False: the text has ended, and nothing was written.
  bool next(int32_t& id, std::string& text);
  const Generated& made() const { return made_; }
  bool ended() const { return ended_; }

 private:
  bool draw(int32_t& id);

  Generator& generator_;
  GenerateSpec spec_;
  std::vector<float> scores_;
  int64_t known_;                       // ids that may be drawn
  std::unique_ptr<StreamedText> text_;  // nullptr: no tokenizer
  Generated made_;
  bool drawing_ = true, ended_ = false;
};

// All of it at once. `show` (optional) is called with what Continuation::next returns.
Generated generate(Generator& generator, std::span<const float> scores, const Tokenizer* tokenizer,
                   const GenerateSpec& spec, const std::function<void(int32_t id, std::string_view text)>& show = {});

}  // namespace bitgrad
