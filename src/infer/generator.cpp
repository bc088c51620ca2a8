#include "bitgrad/infer/generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/math.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/tokenizer.h"

namespace bitgrad {
namespace {

constexpr std::string_view kSampling = "sampling";
constexpr double kMostPenalty = 1e6;
constexpr double kLeastExponent = -700;  // keeps e^x a normal double

// A possible next token: its score, then its weight e^(score - largest score).
struct Candidate {
  int32_t id;
  double score, weight;
};
bool before_in_rank(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}
bool before_in_ids(const Candidate& a, const Candidate& b) { return a.id < b.id; }

double weight_sum(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

void require_finite(std::span<const float> scores) {
  for (size_t i = 0; i < scores.size(); ++i)
    if (!std::isfinite(scores[i]))
      fail_with(ErrorCode::kNonFinite, kSampling, "the score of id ", i, " is ", scores[i],
                ", expected a finite number");
}

std::vector<Candidate> penalized(std::span<const float> scores, std::span<const int32_t> before, double penalty) {
  std::vector<Candidate> out(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) out[i] = {static_cast<int32_t>(i), static_cast<double>(scores[i]), 0};
  if (penalty == 1) return out;
  std::vector<bool> done(scores.size());
  for (const int32_t id : before) {
    const auto at = static_cast<size_t>(id);
    if (id < 0 || at >= scores.size() || done[at]) continue;
    done[at] = true;
    double& score = out[at].score;
    score = score > 0 ? score / penalty : score * penalty;
  }
  return out;
}

void keep_top_k(std::vector<Candidate>& candidates, int64_t k) {
  if (k == 0 || k >= std::ssize(candidates)) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), before_in_rank);
  candidates.resize(static_cast<size_t>(k));
  std::sort(candidates.begin(), candidates.end(), before_in_ids);
}

void set_weights(std::vector<Candidate>& candidates) {
  double largest = candidates[0].score;
  for (const Candidate& c : candidates) largest = std::max(largest, c.score);
  for (Candidate& c : candidates) c.weight = math::detail::exp_double(std::max(c.score - largest, kLeastExponent));
}

void keep_top_p(std::vector<Candidate>& candidates, double p) {
  if (p >= 1) return;
  const double enough = p * weight_sum(candidates);
  const auto after_in_rank = [](const Candidate& a, const Candidate& b) { return before_in_rank(b, a); };
  std::make_heap(candidates.begin(), candidates.end(), after_in_rank);
  auto end = candidates.end();  // the selected candidates are behind it
  double sum = 0;
  do {
    std::pop_heap(candidates.begin(), end, after_in_rank);
    --end;
    sum += end->weight;
  } while (sum < enough && end != candidates.begin());
  candidates.erase(candidates.begin(), end);
  std::sort(candidates.begin(), candidates.end(), before_in_ids);
}

// The candidates for the draw, in ascending order of ids.
std::vector<Candidate> kept(std::span<const float> scores, std::span<const int32_t> before, const SamplingSpec& spec) {
  require(!scores.empty(), kSampling, "got no scores");
  check_sampling(spec);
  require_finite(scores);
  if (spec.temperature == 0 && spec.repetition_penalty == 1) {  // without a list of all ids
    const auto best = std::max_element(scores.begin(), scores.end());
    return {{static_cast<int32_t>(best - scores.begin()), static_cast<double>(*best), 1}};
  }
  std::vector<Candidate> candidates = penalized(scores, before, spec.repetition_penalty);
  if (spec.temperature == 0) {
    candidates = {*std::min_element(candidates.begin(), candidates.end(), before_in_rank)};
    candidates[0].weight = 1;
    return candidates;
  }
  for (Candidate& c : candidates) c.score /= spec.temperature;
  keep_top_k(candidates, spec.top_k);
  set_weights(candidates);
  keep_top_p(candidates, spec.top_p);
  // Relative to the most probable candidate, whose weight is 1.
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < spec.min_p; });
  return candidates;
}

}  // namespace

void check_sampling(const SamplingSpec& s) {
  const auto check = [](bool good, std::string_view what, auto got, std::string_view expected) {
    require(good, kSampling, what, ": got ", got, ", expected ", expected);
  };
  check(s.repetition_penalty > 0 && s.repetition_penalty <= kMostPenalty, "repetition_penalty", s.repetition_penalty,
        "a number above 0, at most 1e6");
  check(s.temperature >= 0 && std::isfinite(s.temperature), "temperature", s.temperature, "a number from 0 on");
  check(s.top_k >= 0, "top_k", s.top_k, "0 (all) or more");
  check(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "a number in (0, 1]");
  check(s.min_p >= 0 && s.min_p <= 1, "min_p", s.min_p, "a number in [0, 1]");
}

std::vector<TokenProbability> token_probabilities(std::span<const float> scores, std::span<const int32_t> before,
                                                  const SamplingSpec& spec) {
  const std::vector<Candidate> candidates = kept(scores, before, spec);
  const double sum = weight_sum(candidates);
  std::vector<TokenProbability> out;
  out.reserve(candidates.size());
  for (const Candidate& c : candidates) out.push_back({c.id, c.weight / sum});
  return out;
}

int32_t sample_token(std::span<const float> scores, std::span<const int32_t> before, const SamplingSpec& spec,
                     int64_t sample, int64_t position) {
  require(sample >= 0 && sample < int64_t{1} << 32 && position >= 0, kSampling, "got sample ", sample, " at position ",
          position, ", expected 0 .. 2^32 - 1, from 0 on");
  const std::vector<Candidate> candidates = kept(scores, before, spec);
  const RandomStream draws{spec.seed, Purpose::kToken, static_cast<uint32_t>(sample), 0};
  const double uniform = static_cast<double>(draws.bits64(static_cast<uint64_t>(position)) >> 11) * 0x1p-53;
  const double at = uniform * weight_sum(candidates);
  double sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.weight;
    if (sum > at) return c.id;
  }
  return candidates.back().id;
}

namespace {

constexpr std::string_view kGenerate = "generate";
constexpr int64_t kPieceRows = 128;  // rows of a prompt that run at once

// For its lifetime, the model reads rows from the middle of a sequence.
class SequenceScope {
 public:
  SequenceScope(StepState& state, SequenceState sequence) : state_(state), outer_(std::move(state.sequence)) {
    state_.sequence = std::move(sequence);
  }
  ~SequenceScope() { state_.sequence = std::move(outer_); }
  SequenceScope(const SequenceScope&) = delete;
  SequenceScope& operator=(const SequenceScope&) = delete;

 private:
  StepState& state_;
  SequenceState outer_;
};

// Treats all ids of the window as one text, whatever the data were: a cache keeps no document boundaries.
class JoinedDocuments {
 public:
  explicit JoinedDocuments(Learner& learner) : learner_(learner), end_(learner.document_end()) {
    learner_.set_document_end(-1);
  }
  ~JoinedDocuments() { learner_.set_document_end(end_); }
  JoinedDocuments(const JoinedDocuments&) = delete;
  JoinedDocuments& operator=(const JoinedDocuments&) = delete;

 private:
  Learner& learner_;
  const int64_t end_;
};

}  // namespace

Generator::Generator(Learner& learner, const GeneratorSpec& spec) : learner_(learner) {
  constexpr std::string_view kNeeds =
      ". Needed: a model of text, trained on data of format tokens, whose layers keep the positions (embedding with "
      "flat: false) and end with scores for each";
  const Form* const in = learner.input();
  require(in != nullptr, kGenerate, "the learner has no plan. Call Learner::plan, or load the model from a file");
  require(in->dtype == dtypes::int32 && in->sample.rank() == 1, kGenerate, "not a language model: its input is ",
          in->dtype, ' ', in->sample, " per sample, expected ids [context]", kNeeds);
  context_ = in->sample[0];
  Form rows;
  rows.samples = 1;
  rows.sample = in->sample;
  rows.dtype = in->dtype;
  rows.values = in->values;
  rows.training = false;
  const DeviceGuard guard(learner.device());
  Module& model = learner.model();
  const Form out = model.plan(rows);
  require(out.sample.rank() == 2 && out.sample[0] == context_, kGenerate, "not a language model: its output is ",
          out.sample, " per sample, expected scores for each of ", context_, " positions", kNeeds);
  vocabulary_ = out.features();
  if (!spec.cache || !model.causal()) return;
  rows.sample = {1};
  model.plan(rows);
  caches_ = std::make_shared<KvCaches>(KvSpec{spec.kv, 1, context_});
}

// The window that contains a position, given by the position of its first row. A window starts every context - context
// / 2 ids.
int64_t Generator::window_of(int64_t position) const {
  if (position < context_) return 0;
  const int64_t step = context_ - context_ / 2;
  return ((position - context_) / step + 1) * step;
}

// Scores for the rows of ids [begin, end); the first one is at position `first` of the window.
Tensor Generator::read_rows(int64_t begin, int64_t end, int64_t first) {
  const DeviceGuard guard(learner_.device());
  Tensor x = Tensor::empty({1, end - begin}, dtypes::int32, MemoryKind::kBatch, Device::cpu());
  std::copy(ids_.begin() + begin, ids_.begin() + end, x.as<int32_t>());
  if (!learner_.device().is_cpu()) x = x.to_device(learner_.device(), MemoryKind::kBatch);
  const SequenceScope scope(learner_.state(), {first, caches_});
  const JoinedDocuments joined(learner_);
  return learner_.predict(x);
}

void Generator::append(std::span<const int32_t> ids) {
  require(!ids.empty(), kGenerate, "got no ids to read");
  const int64_t known = std::max(learner_.input()->ids, vocabulary_);
  for (const int32_t id : ids)
    require(id >= 0 && id < known, kGenerate, "id ", id, ": the model has ids 0 .. ", known - 1);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

// Reads up to kPieceRows rows; without a cache all of the window.
bool Generator::read() {
  const int64_t end = length(), window = window_of(end - 1);
  if (window != window_) rows_ = 0;
  window_ = window;
  const int64_t begin = caches_ ? window_ + rows_ : window_;
  const int64_t until = caches_ ? std::min(begin + kPieceRows, end) : end;
  const Tensor scores = read_rows(begin, until, begin - window_);
  if (caches_) rows_ = until - window_;
  if (until < end) return false;
  const int64_t rows = scores.rows();
  const Tensor last = scores.reshape({rows, vocabulary_}).row_slice(rows - 1, rows).on_host();
  scores_.assign(last.as<float>(), last.as<float>() + vocabulary_);
  return true;
}

std::span<const float> Generator::feed(std::span<const int32_t> ids) {
  const int64_t before = length();
  append(ids);
  try {
    while (!read()) {
    }
  } catch (...) {
    truncate(before);
    throw;
  }
  return scores_;
}

void Generator::truncate(int64_t length) {
  require(length >= 0 && length <= this->length(), kGenerate, "truncate: got ", length, " of ", this->length(), " ids");
  ids_.resize(static_cast<size_t>(length));
  rows_ = std::clamp<int64_t>(length - window_, 0, rows_);
}

std::string_view stop_reason_name(StopReason reason) {
  static constexpr std::string_view kNames[] = {"tokens", "end_of_text", "stop"};
  return kNames[static_cast<size_t>(reason)];
}

int64_t drawn_ids(int64_t vocabulary, const Tokenizer* tokenizer) {
  return tokenizer == nullptr ? vocabulary : std::min(vocabulary, tokenizer->vocabulary());
}

Continuation::Continuation(Generator& generator, std::span<const float> scores, const Tokenizer* tokenizer,
                           GenerateSpec spec)
    : generator_(generator),
      spec_(std::move(spec)),
      scores_(scores.begin(), scores.end()),
      known_(drawn_ids(generator.vocabulary(), tokenizer)) {
  require(spec_.tokens >= 0, kGenerate, "tokens: got ", spec_.tokens, ", expected 0 or more");
  require(tokenizer != nullptr || spec_.stop.empty(), kGenerate, "stop: a text needs a tokenizer, the model has none");
  check_sampling(spec_.sampling);
  if (tokenizer != nullptr) text_ = std::make_unique<StreamedText>(*tokenizer, spec_.stop);
  if (spec_.end.empty() && tokenizer != nullptr) spec_.end.push_back(tokenizer->end_id());
}
Continuation::~Continuation() = default;

// False: the text ends without a further id.
bool Continuation::draw(int32_t& id) {
  if (std::ssize(made_.ids) >= spec_.tokens) return false;
  if (!made_.ids.empty()) {
    const std::span<const float> scores = generator_.feed({&made_.ids.back(), 1});
    scores_.assign(scores.begin(), scores.end());
  }
  const std::span<const float> known = std::span(scores_).first(static_cast<size_t>(known_));
  id = sample_token(known, generator_.ids(), spec_.sampling, spec_.sample, generator_.length());
  made_.ids.push_back(id);
  if (std::find(spec_.end.begin(), spec_.end.end(), id) == spec_.end.end()) return true;
  made_.reason = StopReason::kEnd;
  return false;
}

bool Continuation::next(int32_t& id, std::string& text) {
  if (ended_) return false;
  drawing_ = drawing_ && draw(id);
  text.clear();
  if (drawing_) {
    if (text_) text = text_->add(id);
    if (text_ && text_->stopped()) made_.reason = StopReason::kStop, drawing_ = false;
  } else {
    ended_ = true;
    if (!text_) return false;
    id = -1;
    text = text_->finish();
  }
  made_.text += text;
  return true;
}

Generated generate(Generator& generator, std::span<const float> scores, const Tokenizer* tokenizer,
                   const GenerateSpec& spec, const std::function<void(int32_t, std::string_view)>& show) {
  Continuation continuation(generator, scores, tokenizer, spec);
  int32_t id = -1;
  for (std::string text; continuation.next(id, text);)
    if (show) show(id, text);
  return continuation.made();
}

}  // namespace bitgrad
