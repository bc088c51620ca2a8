// Small runs, and data sets of their own, for the tests of batches on their way to a device.
#pragma once

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/same_as_cpu.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

namespace bitgrad::test {

using Keys = std::vector<std::string>;

// 44 = 4 * 10 + 4 and 23 = 2 * 10 + 3: last batches are short.
inline constexpr const char* kNet = R"yaml(version: 1
run: {name: small_feed, seed: 5}
data:
  train: {format: digits, size: 44}
  test: {format: digits, size: 23}
  affine: [2, -1]
model:
  layers:
    - linear: {out: 8}
    - relu: {}
    - dropout: {p: 0.1}
    - linear: {out: 10}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.02}
train: {stop: 12 steps, eval: {every: 5 steps}}
checkpoint: {every: 2 steps}
)yaml";

inline constexpr const char* kText = R"yaml(version: 1
run: {name: small_text_feed, seed: 7}
data:
  train: {format: text, file: a.txt, context: 4, test_fraction: 0.18}
  test: {format: text, file: a.txt, context: 4, test_fraction: 0.18}
model:
  layers:
    - embedding: {num: 30, dim: 5}
    - linear: {out: 25}
batch: {global: 9, micro: 9}
optim: {name: adam, lr: 0.01}
train: {stop: 12 steps, eval: {every: 5 steps}}
checkpoint: {every: 2 steps}
)yaml";

class TextFile {
 public:
  TextFile() {
    std::ofstream(folder_.file("a.txt"))
        << "no plan survives contact with the enemy; no text survives contact with a reader, who is 1 of many.";
  }
  std::string root() const { return "data.root=" + folder_.path(); }

 private:
  TempDir folder_;
};

inline Keys on(const std::string& device, Keys keys = {}) {
  gpu();
  keys.insert(keys.end(), {"run.bits=strict", "device.kind=" + device});
  return keys;
}
// 30 samples of 3 numbers; sample `bad` throws, `odd` has a label that is no class.
class Brittle final : public Dataset {
 public:
  std::string name() const override { return "brittle"; }
  int64_t size() const override { return 30; }
  std::vector<int64_t> sample_shape() const override { return {3}; }
  int64_t classes() const override { return 3; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    if (index == bad) throw std::runtime_error(concat("sample ", index, " is broken"));
    ++reads;
    for (int64_t i = 0; i < 3; ++i) x[i] = static_cast<float>(index * 3 + i) * 0.01f;
    *label = index == odd ? 3 : static_cast<int32_t>(index % 3);
  }
  static inline int64_t bad = -1, odd = -1;
  static inline std::atomic<int64_t> reads{0};
};

}  // namespace bitgrad::test
