#include <string_view>

#include "bench_step_net.h"

namespace bitgrad::bench {

namespace {

// nanoGPT's two models of tinyshakespeare (karpathy/nanoGPT, config/train_shakespeare_char.py, and "I only have a
// macbook" in its README), the larger one with a sixteenth of its batch, and a model of 91 million parameters. A
// configuration must name its data; none is read here.
struct Size {
  std::string_view name, keys, vocabulary, context, batch;
};
constexpr Size kSizes[] = {
    {"gpt", "{}", "65", "64", "12"},
    {"gpt384", "{layers: 6, heads: 6, dim: 384, context: 256, init_out: \"normal(0,0.00577)\"}", "65", "256", "4"},
    {"gpt768", "{vocabulary: 8192, layers: 12, heads: 12, dim: 768, context: 256, init_out: \"normal(0,0.00408)\"}",
     "8192", "256", "4"}};

struct Weights {
  std::string_view suffix, spec;
};
constexpr Weights kWeights[] = {
    {"-int8", "{dtype: int8, scheme: absmax, granularity: channel}"},
    {"-int4", "{dtype: int4, scheme: symmetric, granularity: group(32), scale_dtype: fp16}"},
    {"-ternary", "{dtype: ternary, scheme: ternary}"},
    {"-bint1", "{dtype: bint1, scheme: binary, alpha: channel}"}};

std::string rules(std::string_view weights) {
  if (weights.empty()) return "";
  return "quant:\n  rules:\n    - {layers: \"layers.3.*\", weights: " + std::string(weights) +
         ", activations: {dtype: int8, scheme: absmax, granularity: token}}\n";
}

std::string yaml_of(const Size& size, std::string_view weights) {
  const auto text = [](std::string_view part) { return std::string(part); };
  return "version: 1\nrun: {name: bench_gpt, seed: 1, bits: fast}\n"
         "data: {train: {format: tokens, file: none.bin, stored: uint16, vocabulary: " +
         text(size.vocabulary) + ", order: random, context: " + text(size.context) +
         "}}\nmodel: {preset: gpt, keys: " + text(size.keys) + "}\n" + rules(weights) +
         "batch: {global: " + text(size.batch) +
         "}\noptim: {name: adamw, lr: 1e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: matrices, clip_norm: 1}\n"
         "schedule: {name: cosine, warmup: 100 steps, final: 0.1}\ntrain: {stop: 2000 steps}\n";
}

}  // namespace

std::string gpt_yaml(const std::string& name) {
  for (const Size& size : kSizes) {
    if (name == size.name) return yaml_of(size, {});
    for (const Weights& w : kWeights)
      if (name == std::string(size.name) + std::string(w.suffix)) return yaml_of(size, w.spec);
  }
  return {};
}

}  // namespace bitgrad::bench
