#include "bitgrad/infer/generator.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/math.h"
#include "bitgrad/base/rng.h"

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

std::vector<Candidate> penalized(std::span<const float> scores, std::span<const int32_t> before, double penalty) {
  std::vector<Candidate> out(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i]))
      fail_with(ErrorCode::kNonFinite, kSampling, "the score of id ", i, " is ", scores[i],
                ", expected a finite number");
    out[i] = {static_cast<int32_t>(i), static_cast<double>(scores[i]), 0};
  }
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

}  // namespace bitgrad
