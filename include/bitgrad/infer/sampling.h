// Sampling: picks the next token id from a language model's scores. docs/numerics.md section 10, "Sampling".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bitgrad {

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

}  // namespace bitgrad
