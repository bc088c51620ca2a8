// Compiled C of networks of integers: inputs, and the codes that it has to give.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/integer_nets.h"
#include "support/integer_reference.h"

namespace bitgrad::test {

constexpr int kCodeSamples = 6;

// arm_acle.h in C, for the host.
constexpr const char* kAcle = R"c(
#include <stdint.h>
typedef int32_t int8x4_t, int16x2_t;
static inline int16x2_t __sxtb16(int8x4_t x) {
  return (int32_t)(((uint32_t)(int16_t)(int8_t)x & 0xffffU) | ((uint32_t)(int8_t)((uint32_t)x >> 16) << 16));
}
static inline int32_t __smlad(int16x2_t a, int16x2_t b, int32_t c) {
  return c + (int16_t)a * (int16_t)b + (int16_t)((uint32_t)a >> 16) * (int16_t)((uint32_t)b >> 16);
}
)c";

inline std::vector<IntegerReference::Codes> code_samples(const inference::Graph& graph, uint64_t seed) {
  IntegerNet draws(Shape{1}, OutputRounding::kDouble, seed);
  std::vector<IntegerReference::Codes> out;
  for (int s = 0; s < kCodeSamples; ++s) {
    IntegerReference::Codes x(static_cast<size_t>(graph[1].form.sample.numel()));
    for (int64_t& each : x) each = s == 0 ? -128 : s == 1 ? 127 : draws.drawn(-128, 127);
    out.push_back(x);
  }
  return out;
}

inline void check_codes(void* library, const std::string& name, const inference::Graph& graph) {
  using Predict = void (*)(const int8_t*, int8_t*);
  const auto predict = reinterpret_cast<Predict>(::dlsym(library, (name + "_predict").c_str()));
  REQUIRE(predict != nullptr);
  IntegerReference reference(graph);
  int64_t clamped = 0, all = 0;
  for (int round = 0; round < 2; ++round)  // what a sample leaves in the buffers does not matter
    for (const IntegerReference::Codes& x : code_samples(graph, 7)) {
      const std::vector<int8_t> in(x.begin(), x.end());
      const IntegerReference::Codes expected = reference.run(x);
      std::vector<int8_t> out(expected.size());
      predict(in.data(), out.data());
      CHECK(IntegerReference::Codes(out.begin(), out.end()) == expected);
      for (const int64_t y : expected) clamped += y == -128 || y == 127 ? 1 : 0;
      all += std::ssize(expected);
    }
  CHECK(clamped < all);  // codes say something
}

}  // namespace bitgrad::test
