// float32 vectors with values and with multiple labels, as idx files: the data of the shipped configurations vectors_*.
#pragma once

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bitgrad/base/rng.h"
#include "support/idx_bytes.h"

namespace bitgrad::test {

inline void write_idx(const std::string& path, std::vector<uint8_t> head, const std::vector<float>& values,
                      bool as_bytes) {
  for (const float v : values) {
    const auto bits = std::bit_cast<uint32_t>(v);
    if (as_bytes)
      head.push_back(static_cast<uint8_t>(v));
    else
      for (int shift = 24; shift >= 0; shift -= 8) head.push_back(static_cast<uint8_t>(bits >> shift));
  }
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(head.data()), std::ssize(head));
}

// Writes <root>/vectors/{train,test}-{x,values,labels}.idx: x [n,8] in [-1, 1); values [n,2], a product and a sine of
// x; labels [n,5], which of five sums of two elements are positive.
inline void write_vectors(const std::string& root, int64_t train, int64_t test) {
  constexpr int64_t kWidth = 8, kValues = 2, kLabels = 5;
  std::filesystem::create_directories(root + "/vectors");
  for (const bool is_test : {false, true}) {
    const int64_t n = is_test ? test : train;
    const RandomStream draws{1, Purpose::kUser, site_id("vectors"), is_test ? 1u : 0u};
    std::vector<float> x, values, labels;
    for (int64_t i = 0; i < n; ++i) {
      float v[kWidth];
      for (int64_t c = 0; c < kWidth; ++c) {
        v[c] = 2 * draws.uniform(static_cast<uint64_t>(i * kWidth + c)) - 1;
        x.push_back(v[c]);
      }
      values.insert(values.end(), {v[0] * v[1], std::sin(3 * v[2]) + 0.5f * v[3]});
      for (int64_t k = 0; k < kLabels; ++k) labels.push_back(v[k] + v[k + 3] > 0 ? 1.0f : 0.0f);
    }
    const std::string head = root + "/vectors/" + (is_test ? "test-" : "train-");
    const auto rows = static_cast<uint32_t>(n);
    write_idx(head + "x.idx", idx_header({rows, kWidth}, 0x0D), x, false);
    write_idx(head + "values.idx", idx_header({rows, kValues}, 0x0D), values, false);
    write_idx(head + "labels.idx", idx_header({rows, kLabels}), labels, true);
  }
}

}  // namespace bitgrad::test
