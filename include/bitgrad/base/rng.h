// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). No per-thread state; the same on every device.
//
// Draws are addressed, not generated in sequence: (seed, purpose, site id, step, element). docs/numerics.md section 7.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bitgrad/base/device.h"

namespace bitgrad {

// X(symbol, value): what a stream of draws is used for, and its step. Values are part of the file formats: never
// renumber.
#define BITGRAD_PURPOSES(X)                                                                                            \
  X(kInit, 1)       /* initial masters; step 0 */                                                                      \
  X(kRequantize, 2) /* stochastic rounding of masters to codes; step = completed optimizer steps */                    \
  X(kDropout, 3)    /* keep masks; step = global microbatch */                                                         \
  X(kShuffle, 4)    /* order of samples; step = epoch */                                                               \
  X(kActivation, 5) /* stochastic rounding of activations; step = global microbatch */                                 \
  X(kGradient, 6) /* stochastic rounding of gy for gx, and of the gradient in a quantize_gradient layer; step = global \
                     microbatch */                                                                                     \
  X(kGradAccumulate, 7) /* stochastic rounding of bf16 gradient sums; step = global microbatch */                      \
  X(kDataset, 8)        /* procedurally generated data; step = split */                                                \
  X(kGradientWeight, 9) /* stochastic rounding of gy for gW; step = global microbatch */                               \
  X(kUpdate, 10)    /* stochastic rounding of updates into codes and bf16 masters; step = completed optimizer steps */ \
  X(kMoment, 11)    /* stochastic rounding of moments; step = completed optimizer steps */                             \
  X(kTransform, 12) /* random transforms of samples; step = epoch */                                                   \
  X(kAugment, 13)   /* random crops and mirror images; step = epoch */                                                 \
  X(kSample, 14)    /* samples drawn from the whole data set; step = epoch */                                          \
  X(kToken, 15)     /* sampled tokens; step 0 */                                                                       \
  X(kWire, 16)      /* stochastic rounding of gradients between ranks; step = the sender's first microbatch */         \
  X(kUser, 255)     /* reserved for programs that use the library */
enum class Purpose : uint8_t {
#define BITGRAD_PURPOSE(symbol, value) symbol = value,
  BITGRAD_PURPOSES(BITGRAD_PURPOSE)
#undef BITGRAD_PURPOSE
};

using PhiloxBlock = std::array<uint32_t, 4>;

// One ten-round Philox block. counter[0] is the fastest-running word.
BITGRAD_HD constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// CRC32C (Castagnoli, reflected 0x82F63B78, initial value and final xor all ones). `crc` continues an earlier checksum.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// Id of a parameter or random site: CRC32C of its full path.
inline uint32_t site_id(std::string_view path) { return crc32c(path.data(), path.size()); }

// A stream of draws. `step` is the number of completed optimizer steps for weights, the global microbatch for
// activations and gradients, the epoch for shuffles; `element` is the row-major index in the unsharded tensor.
struct RandomStream {
  uint64_t seed = 0;
  Purpose purpose = Purpose::kInit;
  uint32_t id = 0;
  uint32_t step = 0;
  // Optional, in device memory, for recorded launches (base/step_scalars.h): added to `step` when the kernel draws.
  const uint32_t* live = nullptr;

  // counter = {block lo32, purpose << 24 | block hi24, id, step (+ *live)}, key = seed (lo, hi).
  BITGRAD_HD PhiloxBlock block(uint64_t index) const {
    return philox4x32_10({static_cast<uint32_t>(index),
                          (static_cast<uint32_t>(purpose) << 24) | (static_cast<uint32_t>(index >> 32) & 0xFFFFFFu), id,
                          live != nullptr ? step + *live : step},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  // Word i of a block. Selected rather than indexed, so that kernels keep the block in registers.
  BITGRAD_HD static uint32_t word_of(const PhiloxBlock& b, uint64_t i) {
    const uint32_t low = i % 2 == 0 ? b[0] : b[1], high = i % 2 == 0 ? b[2] : b[3];
    return i < 2 ? low : high;
  }
  // 16-bit draw of element e: block e/8, word (e%8)/2, low half first.
  BITGRAD_HD uint16_t bits16(uint64_t e) const {
    const uint32_t word = word_of(block(e / 8), (e % 8) / 2);
    return static_cast<uint16_t>(e % 2 == 0 ? word : word >> 16);
  }
  // 32-bit draw of element e: block e/4, word e%4.
  BITGRAD_HD uint32_t bits32(uint64_t e) const { return word_of(block(e / 4), e % 4); }
  // w0 | w1 << 32 of block e.
  BITGRAD_HD uint64_t bits64(uint64_t e) const {
    const PhiloxBlock b = block(e);
    return b[0] | (uint64_t{b[1]} << 32);
  }
  // Uniform in [0, 1): (bits32 >> 8) * 2^-24.
  BITGRAD_HD float uniform(uint64_t e) const { return static_cast<float>(bits32(e) >> 8) * 0x1p-24f; }
  // Standard normal draw of element e by Box-Muller (Box and Muller, 1958). Words (w0, w1) of block e/4 give elements 0
  // and 1 of its four, (w2, w3) elements 2 and 3: u1 = ((w_a >> 8) + 1) * 2^-24, u2 = (w_b >> 8) * 2^-24, r = sqrt(-2
  // log u1) with math::log in fp32; r*cos(2 pi u2) and r*sin(2 pi u2) in double, rounded once.
  float normal(uint64_t e) const;
  // Fills out[0..n) with the 16-bit draws of elements first .. first+n-1, many blocks at a time. Same bits as bits16.
  void fill_bits16(uint64_t first, int64_t n, uint16_t* out) const;
};

}  // namespace bitgrad
