// Sampling against a plain reference: sorted lists in double, exp of the C library.
#include "bitgrad/infer/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "bitgrad/base/rng.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::map<int32_t, double> reference(const std::vector<float>& scores, const std::vector<int32_t>& before,
                                    const SamplingSpec& s) {
  std::vector<double> l(scores.begin(), scores.end());
  for (const int32_t id : std::set<int32_t>(before.begin(), before.end())) {
    double& x = l[static_cast<size_t>(id)];
    x = x > 0 ? x / s.repetition_penalty : x * s.repetition_penalty;
  }
  std::vector<int32_t> order(l.size());
  std::iota(order.begin(), order.end(), 0);
  const auto sorted = [&] {
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return l[static_cast<size_t>(a)] > l[static_cast<size_t>(b)]; });
  };
  sorted();
  if (s.temperature == 0) return {{order[0], 1.0}};
  for (double& x : l) x /= s.temperature;
  sorted();
  if (s.top_k > 0 && s.top_k < static_cast<int64_t>(order.size())) order.resize(static_cast<size_t>(s.top_k));
  const auto weight = [&](int32_t id) {
    return std::exp(l[static_cast<size_t>(id)] - l[static_cast<size_t>(order[0])]);
  };
  double sum = 0;
  for (const int32_t id : order) sum += weight(id);
  std::map<int32_t, double> kept;
  double reached = 0;
  for (const int32_t id : order) {
    if (s.top_p < 1 && reached >= s.top_p * sum) break;
    reached += weight(id);
    if (weight(id) >= s.min_p) kept[id] = weight(id);
  }
  double total = 0;
  for (const auto& [id, w] : kept) total += w;
  for (auto& [id, w] : kept) w /= total;
  return kept;
}

std::vector<float> some_scores(size_t n, uint64_t seed, bool ties) {
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  std::vector<float> scores(n);
  for (size_t i = 0; i < n; ++i) {
    scores[i] = 3 * draws.normal(i);
    if (ties) scores[i] = std::rint(scores[i]);
  }
  return scores;
}

std::vector<int32_t> ids_of(const std::vector<TokenProbability>& all) {
  std::vector<int32_t> ids;
  for (const TokenProbability& t : all) ids.push_back(t.id);
  return ids;
}

}  // namespace

TEST_CASE("what may be drawn is that of a plain reference in double") {
  uint64_t seed = 0;
  for (const size_t n : {size_t{1}, size_t{2}, size_t{5}, size_t{64}, size_t{257}})
    for (const bool ties : {false, true})
      for (const double temperature : {0.0, 0.3, 1.0, 2.0})
        for (const int64_t top_k : {0, 1, 3, 50, 1000})
          for (const double top_p : {0.05, 0.5, 0.9, 1.0})
            for (const double min_p : {0.0, 0.1, 1.0})
              for (const double penalty : {1.0, 1.5, 0.8}) {
                const SamplingSpec spec{.repetition_penalty = penalty,
                                        .temperature = temperature,
                                        .top_k = top_k,
                                        .top_p = top_p,
                                        .min_p = min_p};
                const std::vector<float> scores = some_scores(n, ++seed, ties);
                const std::vector<int32_t> before{0, static_cast<int32_t>(n / 2), 0, static_cast<int32_t>(n - 1)};
                const auto expected = reference(scores, before, spec);
                const auto got = token_probabilities(scores, before, spec);
                REQUIRE(got.size() == expected.size());
                auto at = expected.begin();
                for (const TokenProbability& t : got) {
                  REQUIRE(t.id == at->first);
                  REQUIRE(t.probability == Approx(at->second).epsilon(1e-11));
                  ++at;
                }
              }
}

TEST_CASE("ties go to the lower id, and a nucleus ends where its sum reaches p") {
  const std::vector<float> equal(8, 1.5f);
  CHECK(sample_token(equal, {}, {.temperature = 0}, 0, 0) == 0);
  CHECK(ids_of(token_probabilities(equal, {}, {.top_k = 3})) == std::vector<int32_t>{0, 1, 2});
  CHECK(ids_of(token_probabilities(equal, {}, {.top_p = 0.5})) == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(ids_of(token_probabilities(equal, {}, {.top_p = 0.51})) == std::vector<int32_t>{0, 1, 2, 3, 4});
  CHECK(ids_of(token_probabilities(equal, {}, {.top_p = 1e-9})) == std::vector<int32_t>{0});
  CHECK(token_probabilities(equal, {}, {.min_p = 1}).size() == 8);
  const std::vector<float> scores{0, 2, 2, 1};
  CHECK(sample_token(scores, {}, {.temperature = 0}, 0, 0) == 1);
  CHECK(sample_token(scores, std::vector<int32_t>{1}, {.repetition_penalty = 1.1, .temperature = 0}, 0, 0) == 2);
  // Scores far apart: nothing overflows, and what cannot be drawn is not drawn.
  const std::vector<float> far{-3e38f, 3e38f, 0};
  CHECK(sample_token(far, {}, {.temperature = 1e-3}, 0, 5) == 1);
}

TEST_CASE("draws have the probabilities, and are functions of seed, sample and position") {
  const std::vector<float> scores = some_scores(6, 3, false);
  const SamplingSpec spec{.temperature = 1.5, .top_k = 4, .seed = 11};
  const auto expected = token_probabilities(scores, {}, spec);
  std::map<int32_t, int64_t> counts;
  constexpr int64_t kDraws = 40000;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[sample_token(scores, {}, spec, i % 7, i / 7)];
  CHECK(counts.size() == 4);
  for (const TokenProbability& t : expected) {
    const double deviation = std::sqrt(t.probability * (1 - t.probability) / kDraws);
    CHECK(std::fabs(static_cast<double>(counts[t.id]) / kDraws - t.probability) < 5 * deviation);
  }
  // By hand: the draw is r64 of block `position`, of purpose token and id `sample`.
  for (int64_t position = 0; position < 50; ++position)
    for (const int64_t sample : {0, 3}) {
      const RandomStream draws{11, Purpose::kToken, static_cast<uint32_t>(sample), 0};
      const double u = static_cast<double>(draws.bits64(static_cast<uint64_t>(position)) >> 11) * 0x1p-53;
      double sum = 0;
      int32_t id = -1;
      for (const TokenProbability& t : expected) {
        sum += t.probability;
        if (id < 0 && sum > u) id = t.id;
      }
      CHECK(sample_token(scores, {}, spec, sample, position) == id);
    }
}

TEST_CASE("sampling reports options that are out of range") {
  const std::vector<float> scores{1, 2};
  const auto error = [&](const SamplingSpec& spec) { return error_of([&] { sample_token(scores, {}, spec, 0, 0); }); };
  CHECK(contains(error({.repetition_penalty = 0}), "[sampling] repetition_penalty: got 0, expected a number above 0"));
  CHECK(contains(error({.temperature = -1}), "temperature: got -1, expected a number from 0 on"));
  CHECK(contains(error({.top_k = -1}), "top_k: got -1, expected 0 (all) or more"));
  CHECK(contains(error({.top_p = 0}), "top_p: got 0, expected a number in (0, 1]"));
  CHECK(contains(error({.min_p = 1.5}), "min_p: got 1.5, expected a number in [0, 1]"));
  CHECK(contains(error_of([&] { sample_token({}, {}, {}, 0, 0); }), "got no scores"));
  CHECK(contains(error_of([&] { sample_token(scores, {}, {}, -1, 0); }), "got sample -1 at position 0"));
  const std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN()};
  CHECK(contains(error_of([&] { sample_token(bad, {}, {.temperature = 0}, 0, 0); }), "the score of id 1 is nan"));
  CHECK(error_code_of([&] { sample_token(bad, {}, {}, 0, 0); }) == static_cast<int>(ErrorCode::kNonFinite));
}
