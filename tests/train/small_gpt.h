// A language model of two blocks for tests of generation: grouped heads, learned or rotary positions, any quantization.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "train/config_support.h"

namespace bitgrad::test {

inline constexpr int64_t kGptContext = 40, kGptIds = 33;

// Learned positions; with rope: none, and heads that turn.
inline constexpr const char* kSmallGpt = R"yaml(version: 1
run: {name: small_gpt, seed: 5}
data:
  root: /nowhere
  tokenizer: chars
  train: {format: tokens, file: a.txt, context: 40}
  test: {format: tokens, file: a.txt, context: 40}
model:
  layers:
    - embedding: {num: 33, dim: 32, flat: false, weights: {init: "normal(0,0.5)"}}
    - positions: {context: 40, std: 0.5}
    - repeat:
        times: 2
        layers:
          - residual:
              body:
                - layer_norm: {bias: false}
                - linear: {out: 64, bias: false}
                - attention: {heads: 4, kv_heads: 2}
                - linear: {out: 32}
          - residual:
              body:
                - rms_norm: {}
                - linear: {out: 288}
                - gelu: {}
                - linear: {out: 32, bias: false}
    - layer_norm: {bias: false}
    - head: {tie: layers.0}
batch: {global: 3}
optim: {name: adamw, lr: 0.01}
train: {stop: 4 steps, eval: {batch: 3}}
)yaml";

// As one word of overrides: where the blocks of the model are held so.
inline std::string in_blocks(const std::string& keys) { return "quant.rules=[{layers: \"layers.2.*\", " + keys + "}]"; }
inline const std::string kAttentionKeys = "model.layers.2.repeat.layers.0.residual.body.2.attention.";
inline const std::string kRope = kAttentionKeys + "rope=50";
inline const std::string kHeadNorm = kAttentionKeys + "qk_norm=head", kRowNorm = kAttentionKeys + "qk_norm=row";

inline Tensor ids_tensor(const std::vector<int32_t>& ids, int64_t samples = 1) {
  const std::vector<double> numbers(ids.begin(), ids.end());
  return Tensor::from_elements({samples, static_cast<int64_t>(ids.size()) / samples}, dtypes::int32, numbers);
}
inline std::vector<int32_t> some_ids(int64_t n, uint64_t seed = 1) {
  const RandomStream draws{seed, Purpose::kUser, 7, 0};
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(draws.bits32(static_cast<uint64_t>(i)) % static_cast<uint32_t>(kGptIds)));
  return ids;
}

inline std::unique_ptr<Learner> gpt_learner(const Strings& overrides, int64_t microbatches = 2,
                                            int64_t context = kGptContext) {
  const RunConfig config = parse_config(kSmallGpt, "gpt.yaml", overrides);
  Form in;
  in.sample = {context};
  in.dtype = dtypes::int32;
  in.ids = kGptIds;
  std::unique_ptr<Learner> learner = build_learner(config, in, kGptIds, 100);
  for (int64_t i = 0; i < microbatches; ++i) {
    const auto seed = static_cast<uint64_t>(10 + 2 * i);
    Tensor x = ids_tensor(some_ids(3 * kGptContext, seed), 3), y = ids_tensor(some_ids(3 * kGptContext, seed + 1), 3);
    if (!learner->device().is_cpu()) {
      x = x.to_device(learner->device(), MemoryKind::kBatch);
      y = y.to_device(learner->device(), MemoryKind::kBatch);
    }
    learner->microbatch(x, y);
  }
  return learner;
}

// A decoder of 33 ids of a preset ("gpt", "llama") with `keys` and at most one rule of quant.rules, after one
// microbatch, converted.
inline std::unique_ptr<Learner> converted_decoder(const std::string& preset, const std::string& keys,
                                                  const std::string& rule) {
  const RunConfig config = parse_config(
      "version: 1\nrun: {name: small, seed: 5}\ndata: {root: /nowhere, tokenizer: bytes, train: {format: tokens, file: "
      "a.txt, context: 12}}\nmodel: {preset: " +
          preset + ", keys: {vocabulary: 33, " + keys + "}}\n" +
          (rule.empty() ? "" : "quant: {rules: [" + rule + "]}\n") +
          "batch: {global: 2}\noptim: {name: adamw, lr: 0.01}\ntrain: {stop: 4 steps}\n",
      "small.yaml", {});
  Form in;
  in.sample = {12};
  in.dtype = dtypes::int32;
  in.ids = 33;
  auto learner = build_learner(config, in, 33, 100);
  learner->microbatch(ids_tensor(some_ids(24, 1), 2), ids_tensor(some_ids(24, 2), 2));
  learner->convert();
  return learner;
}

}  // namespace bitgrad::test
