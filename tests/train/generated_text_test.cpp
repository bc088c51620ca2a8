// Texts that a generator draws: what they are functions of, and where they end.
#include <algorithm>

#include "bitgrad/infer/generator.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Scores = std::vector<float>;

Scores fed(Generator& generator, const std::vector<int32_t>& ids) {
  const std::span<const float> scores = generator.feed(ids);
  return {scores.begin(), scores.end()};
}

// Two letters for each id, and a mark of the end.
class Letters final : public Tokenizer {
 public:
  explicit Letters(int32_t end, int64_t ids = kGptIds) : end_(end), ids_(ids) {
    for (int32_t id = 0; id < kGptIds; ++id) pieces_.push_back({static_cast<char>('a' + id % 26), id < 26 ? '.' : '-'});
  }
  std::string_view kind() const override { return "letters"; }
  int64_t vocabulary() const override { return ids_; }
  void encode(std::string_view, const Sink&) const override {}
  std::string_view bytes(int32_t id) const override { return pieces_.at(static_cast<size_t>(id)); }
  bool special(int32_t id) const override { return id == end_; }
  int32_t end_id() const override { return end_; }

 private:
  int32_t end_;
  int64_t ids_;
  std::vector<std::string> pieces_;
};

}  // namespace

TEST_CASE("texts are functions of seed, sample and prompt") {
  const auto learner = gpt_learner({});
  const auto run = [&](uint64_t seed, int64_t sample, const GeneratorSpec& how = {}) {
    Generator generator(*learner, how);
    const Scores scores = fed(generator, {5, 6});
    GenerateSpec spec;
    spec.tokens = 50;
    spec.sample = sample;
    spec.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.95, .seed = seed};
    return generate(generator, scores, nullptr, spec).ids;
  };
  const std::vector<int32_t> ids = run(1, 0);
  CHECK(ids.size() == 50);
  CHECK(run(1, 0) == ids);
  CHECK(run(1, 0, {.cache = false}) == ids);
  CHECK(run(2, 0) != ids);
  CHECK(run(1, 1) != ids);
  // From the same rows of a prompt.
  Generator generator(*learner);
  const Scores scores = fed(generator, {5, 6});
  GenerateSpec spec;
  spec.tokens = 50;
  spec.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.95, .seed = 1};
  for (const int64_t sample : {1, 0}) {
    generator.truncate(2);
    spec.sample = sample;
    CHECK(generate(generator, scores, nullptr, spec).ids == run(1, sample));
  }
}

TEST_CASE("ids of a padded vocabulary that the tokenizer has no token for are never drawn") {
  const auto learner = gpt_learner({});
  const Letters few(-1, 3);
  CHECK(drawn_ids(kGptIds, &few) == 3);
  CHECK(drawn_ids(2, &few) == 2);
  CHECK(drawn_ids(kGptIds, nullptr) == kGptIds);
  Generator generator(*learner);
  const Scores scores = fed(generator, {1, kGptIds - 1});
  const Generated made = generate(generator, scores, &few, {.tokens = 40, .sampling = {.temperature = 5, .seed = 3}});
  CHECK(made.ids.size() == 40);
  CHECK(*std::max_element(made.ids.begin(), made.ids.end()) == 2);
}

TEST_CASE("a text ends at its mark, at a stop text or at the token limit, and is shown as it grows") {
  const auto learner = gpt_learner({});
  struct Shown {
    Generated made;
    std::string text;
    std::vector<int32_t> ids;
  };
  const auto run = [&](int32_t end, std::vector<std::string> stop) {
    Generator generator(*learner);
    const Scores scores = fed(generator, {5, 6});
    const Letters letters(end);
    GenerateSpec spec;
    spec.tokens = 20;
    spec.sampling = {.temperature = 2, .seed = 4};
    spec.stop = std::move(stop);
    Shown shown;
    shown.made = generate(generator, scores, &letters, spec, [&](int32_t id, std::string_view text) {
      shown.text += text;
      if (id >= 0) shown.ids.push_back(id);
    });
    return shown;
  };
  const Shown all = run(-1, {});
  CHECK(all.made.ids.size() == 20);
  CHECK(all.made.reason == StopReason::kTokens);
  CHECK(all.made.text.size() == 40);
  CHECK(all.text == all.made.text);
  CHECK(all.ids == all.made.ids);
  const auto at = static_cast<size_t>(std::find_if(all.ids.begin() + 4, all.ids.end(),
                                                   [&](int32_t id) {
                                                     return std::find(all.ids.begin(), all.ids.begin() + 4, id) ==
                                                            all.ids.begin() + 4;
                                                   }) -
                                      all.ids.begin());
  REQUIRE(at < 20);
  const Shown ended = run(all.ids[at], {});
  CHECK(ended.made.reason == StopReason::kEnd);
  CHECK(ended.made.ids.size() == at + 1);
  CHECK(ended.made.text == all.made.text.substr(0, 2 * at));
  const Shown stopped = run(-1, {"never", all.made.text.substr(11, 4)});
  CHECK(stopped.made.reason == StopReason::kStop);
  CHECK(stopped.made.text == all.made.text.substr(0, all.made.text.find(all.made.text.substr(11, 4))));
  CHECK(stopped.text == stopped.made.text);
  CHECK(stopped.made.ids.size() <= 8);
  Generator generator(*learner);
  const Scores scores = fed(generator, {1});
  CHECK(contains(error_of([&] { generate(generator, scores, nullptr, {.stop = {"x"}}); }),
                 "stop: a text needs a tokenizer, the model has none"));
  CHECK(contains(error_of([&] { generate(generator, scores, nullptr, {.tokens = -1}); }), "tokens: got -1"));
  for (const auto& [reason, name] :
       {std::pair{StopReason::kTokens, "tokens"}, {StopReason::kEnd, "end_of_text"}, {StopReason::kStop, "stop"}})
    CHECK(stop_reason_name(reason) == name);
}
