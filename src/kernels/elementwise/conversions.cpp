// Family elementwise: conversion between fp32 and bf16, and optimizer moments in 8 and 4 bits (block-wise scales as in
// Dettmers et al. 2022, arXiv 2110.02861, section 2, but with the codes of moment_codes.h and stochastic rounding;
// docs/numerics.md section 6).
#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

constexpr int64_t kDraws = elementwise::kMomentRun * kMomentBlock;  // random draws kept on the stack
static_assert(kTileElements % kDraws == 0);

// Calls body(begin, end, draws) for runs of at most kDraws elements of n.
template <typename Body>
void cut_with_draws(int64_t n, const RandomStream& draws, uint64_t first, Body&& body) {
  cut(n, [&](int64_t begin, int64_t end) {
    alignas(64) uint16_t bits[kDraws];
    for (int64_t i = begin; i < end; i += kDraws) {
      const int64_t stop = std::min(i + kDraws, end);
      draws.fill_bits16(first + static_cast<uint64_t>(i), stop - i, bits);
      body(i, stop, bits);
    }
  });
}

}  // namespace

void cpu::to_bf16(int64_t n, const float* x, uint16_t* y) {
  const auto loop = elementwise::loops().to_bf16;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, y + i); });
}

void cpu::from_bf16(int64_t n, const uint16_t* x, float* y) {
  const auto loop = elementwise::loops().from_bf16;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, y + i); });
}

void cpu::to_bf16_stochastic(int64_t n, const float* x, const RandomStream& draws, uint64_t first, uint16_t* y) {
  const auto loop = elementwise::loops().to_bf16_stochastic;
  cut_with_draws(n, draws, first,
                 [&](int64_t i, int64_t end, const uint16_t* bits) { loop(end - i, x + i, bits, y + i); });
}

void cpu::narrow_moments(int64_t n, const float* x, const RandomStream& draws, uint64_t first, const MomentCodes& q) {
  const auto loop = elementwise::loops().narrow_moments;
  const uint16_t turn = moment_codes::turn_of(draws);
  cut_with_draws(n, moment_codes::at_rest(draws), first,
                 [&](int64_t i, int64_t end, const uint16_t* bits) { loop(end - i, x + i, bits, turn, q.from(i)); });
}

void cpu::widen_moments(int64_t n, const MomentCodes& q, float* x) {
  const auto loop = elementwise::loops().widen_moments;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, q.from(i), x + i); });
}

}  // namespace bitgrad::kernels
