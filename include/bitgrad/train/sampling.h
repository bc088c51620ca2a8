// Which token follows: scores of a language model to one id. docs/numerics.md section 10, "Sampling".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bitgrad {

// Applied in this order, in double.
struct SamplingSpec {
  // Scores of ids that came before: l / penalty where l > 0, else l * penalty (Keskar et al. 2019, arXiv 1909.05858,
  // section 4.1). 1: none.
  double repetition_penalty = 1;
  double temperature = 1;  // scores / temperature; 0: the largest score, of equal ones the lowest id
  int64_t top_k = 0;       // the k largest scores, of equal ones the lower ids; 0: all
  // The most probable ids, of equal ones the lower first, until their sum reaches p (Holtzman et al. 2020, arXiv
  // 1904.09751, section 3.1).
  double top_p = 1;
  double min_p = 0;   // ids of at least min_p times the largest probability (Nguyen et al. 2024, arXiv 2407.01082)
  uint64_t seed = 0;  // of the draw: purpose token, id = sample, element = position
};
// Throws Error for numbers out of range: penalty and top_p in (0, 1e6] and (0, 1], temperature and top_k from 0 on,
// min_p in [0, 1].
void check_sampling(const SamplingSpec& spec);

struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
};
// What may be drawn, in ascending order of ids; the probabilities sum to 1. scores: of ids 0 .. n - 1, n >= 1, finite
// (else Error(kNonFinite)). before: ids that came before, in any order, also several times.
std::vector<TokenProbability> token_probabilities(std::span<const float> scores, std::span<const int32_t> before,
                                                  const SamplingSpec& spec);
// One of them, by one draw: a function of its arguments alone. sample: which of several texts, below 2^32; position: of
// the token in its sequence.
int32_t sample_token(std::span<const float> scores, std::span<const int32_t> before, const SamplingSpec& spec,
                     int64_t sample, int64_t position);

}  // namespace bitgrad
