#include "bitgrad/train/generator.h"

#include <algorithm>
#include <optional>

#include "bitgrad/data/streamed_text.h"

namespace bitgrad {
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
  require(in->dtype == dtypes::int32 && in->sample.rank() == 1, kGenerate, "this is no language model: it takes ",
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
  require(out.sample.rank() == 2 && out.sample[0] == context_, kGenerate, "this is no language model: it gives ",
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

std::span<const float> Generator::feed(std::span<const int32_t> ids) {
  require(!ids.empty(), kGenerate, "got no ids to read");
  const int64_t known = std::max(learner_.input()->ids, vocabulary_);
  for (const int32_t id : ids)
    require(id >= 0 && id < known, kGenerate, "id ", id, ": the model has ids 0 .. ", known - 1);
  const int64_t before = length();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  try {
    const int64_t end = length(), window = window_of(end - 1);
    if (window != window_) rows_ = 0;
    window_ = window;
    Tensor scores;
    if (!caches_) scores = read_rows(window_, end, 0);
    while (caches_ && window_ + rows_ < end) {
      const int64_t begin = window_ + rows_, until = std::min(begin + kPieceRows, end);
      scores = read_rows(begin, until, rows_);
      rows_ = until - window_;
    }
    const int64_t rows = scores.rows();
    const Tensor last = scores.reshape({rows, vocabulary_}).row_slice(rows - 1, rows).on_host();
    scores_.assign(last.as<float>(), last.as<float>() + vocabulary_);
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

Generated generate(Generator& generator, std::span<const float> scores, const Tokenizer* tokenizer,
                   const GenerateSpec& spec, const std::function<void(int32_t, std::string_view)>& show) {
  require(spec.tokens >= 0, kGenerate, "tokens: got ", spec.tokens, ", expected 0 or more");
  require(tokenizer != nullptr || spec.stop.empty(), kGenerate, "stop: a text needs a tokenizer, the model has none");
  check_sampling(spec.sampling);
  Generated out;
  std::optional<StreamedText> text;
  if (tokenizer != nullptr) text.emplace(*tokenizer, spec.stop);
  const auto tell = [&](int32_t id, const std::string& piece) {
    out.text += piece;
    if (show) show(id, piece);
  };
  std::vector<int32_t> ends = spec.end;
  if (ends.empty() && tokenizer != nullptr) ends.push_back(tokenizer->end_id());
  const int64_t known = drawn_ids(generator.vocabulary(), tokenizer);
  while (std::ssize(out.ids) < spec.tokens) {
    const int32_t id = sample_token(scores.first(static_cast<size_t>(known)), generator.ids(), spec.sampling,
                                    spec.sample, generator.length());
    out.ids.push_back(id);
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
      out.reason = StopReason::kEnd;
      break;
    }
    tell(id, text ? text->add(id) : std::string());
    if (text && text->stopped()) {
      out.reason = StopReason::kStop;
      break;
    }
    if (std::ssize(out.ids) < spec.tokens) scores = generator.feed({&id, 1});
  }
  if (text) tell(-1, text->finish());
  return out;
}

}  // namespace bitgrad
