// Generator: a language model that is given ids and says what may follow. docs/numerics.md section 10, "Generation".
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
#include "bitgrad/train/sampling.h"

namespace bitgrad {

struct GeneratorSpec {
  // Keys and values of the rows so far are kept, so that a further id costs one row. false: each id reads all rows of
  // the window again, with the same bits where `kv` is fp32. A model without attention keeps nothing.
  bool cache = true;
  KvKind kv = KvKind::kFp32;
};

class Generator {
 public:
  // Of a model that was planned for ids [context] and gives scores for each position, [context, vocabulary]; else Error
  // that says what is needed. The learner stays the caller's and must live as long; its state().sequence is used during
  // calls. Layouts of single rows are planned here.
  explicit Generator(Learner& learner, const GeneratorSpec& spec = {});

  int64_t context() const { return context_; }  // most rows that the model sees at once
  int64_t vocabulary() const { return vocabulary_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }

  // Appends ids, at least one; the scores [vocabulary] of what follows the last one, on the host, good until the next
  // call. The scores depend on the ids alone, not on how they were fed. Past `context` the window moves: the last
  // context / 2 ids are read anew, at positions from 0 on, and ids are appended until it is full again. All ids of the
  // window are one text, also where the data were read with documents apart. Throws Error
  // for an id that the model does not have, and as Learner::predict; the ids are those before then.
  std::span<const float> feed(std::span<const int32_t> ids);
  // Forgets ids from `length` on; the rows of the others are kept where the window is the same.
  void truncate(int64_t length);

  // Of keys and values.
  int64_t cache_bytes() const { return caches_ ? caches_->bytes() : 0; }
  bool cached() const { return caches_ != nullptr; }

 private:
  int64_t window_of(int64_t position) const;
  Tensor read_rows(int64_t begin, int64_t end, int64_t first);

  Learner& learner_;
  int64_t context_ = 0, vocabulary_ = 0;
  std::shared_ptr<KvCaches> caches_;  // nullptr: none
  std::vector<int32_t> ids_;
  int64_t window_ = 0, rows_ = 0;  // rows_ ids from window_ on are in the caches
  std::vector<float> scores_;
};

// Why a text ended.
enum class StopReason : uint8_t { kTokens, kEnd, kStop };
std::string_view stop_reason_name(StopReason reason);  // tokens, end_of_text, stop

struct GenerateSpec {
  int64_t tokens = 256;  // at most so many
  SamplingSpec sampling = {};
  int64_t sample = 0;                  // which of several texts of one seed
  std::vector<std::string> stop = {};  // the text ends before the first of these. Not empty ones; needs a tokenizer
};
struct Generated {
  std::vector<int32_t> ids = {};  // that were drawn, the one that ended the text too
  std::string text = {};          // UTF-8, without what stopped it; empty without a tokenizer
  StopReason reason = StopReason::kTokens;
};
// Draws tokens after those that the generator was fed, whose last `scores` are, and feeds them. tokenizer: nullptr for
// ids alone; its end_id ends the text. show (optional) gets each id and the text that it made certain: whole
// characters (data/streamed_text.h); last with id -1 what was held back.
Generated generate(Generator& generator, std::span<const float> scores, const Tokenizer* tokenizer,
                   const GenerateSpec& spec, const std::function<void(int32_t id, std::string_view text)>& show = {});

}  // namespace bitgrad
