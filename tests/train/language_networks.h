// Small language models on a text of a few hundred characters: a GPT and a net like Llama, in every low-bit form.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "train/small_runs.h"

namespace bitgrad::test {

// Learned positions, layer norm, gelu, tied head; dropout everywhere, on attention too. $R: whether rounds run again.
inline constexpr const char* kSmallGptModel = R"yaml(model:
  blocks:
    block:
      layers:
        - residual:
            body:
              [{layer_norm: {bias: false}}, {linear: {out: 96, bias: false}}, {attention: {heads: 4, dropout: 0.2}},
               {linear: {out: 32, bias: false}}, {dropout: {p: 0.1}}]
        - residual: {body: [{layer_norm: {}}, {linear: {out: 64}}, {gelu: {}}, {linear: {out: 32}}, {dropout: {p: 0.1}}]}
  layers:
    - embedding: {num: 26, dim: 32, flat: false, weights: {init: "normal(0,0.1)"}}
    - positions: {context: 12}
    - dropout: {p: 0.1}
    - repeat: {times: 2, recompute: $R, layers: [{block: {}}]}
    - layer_norm: {bias: false}
    - head: {tie: layers.0}
)yaml";

// Rotary positions, RMS norm, SwiGLU, heads in groups, a head of its own.
inline constexpr const char* kSmallLlama = R"yaml(model:
  blocks:
    block:
      layers:
        - residual:
            body:
              [{rms_norm: {}}, {linear: {out: 64, bias: false}}, {attention: {heads: 4, kv_heads: 2, rope: 100, dropout: 0.1}},
               {linear: {out: 32, bias: false}}]
        - residual: {body: [{rms_norm: {}}, {linear: {out: 128, bias: false}}, {swiglu: {}}, {linear: {out: 32, bias: false}}]}
  layers:
    - embedding: {num: 26, dim: 32, flat: false, weights: {init: "normal(0,0.1)"}}
    - repeat: {times: 2, recompute: $R, layers: [{block: {}}]}
    - rms_norm: {}
    - linear: {out: 26, bias: false}
)yaml";

// In place of an override: the products of gradients in the blocks multiply int8 codes.
inline constexpr const char* kInt8Gradients = "int8 gradients";

struct LanguageForm {
  std::string name;
  std::vector<std::string> keys;
};
inline const std::vector<LanguageForm>& language_forms() {
  static const std::string tokens = "activations: {dtype: int8, scheme: absmax, granularity: token}";
  static const std::vector<LanguageForm> forms = {
      {"fp32", {}},
      {"int4 groups",
       {"quant.rules=[{layers: 'layers.*.*.*', weights: {dtype: int4, scheme: symmetric, granularity: group(32)}, " +
        tokens + "}]"}},
      {"ternary, int8 gradients",
       {"quant.rules=[{layers: 'layers.*.*.*', weights: {dtype: ternary, scheme: ternary}, " + tokens + "}]",
        kInt8Gradients}},
      {"ternary, bf16 masters, 8-bit moments, fused",
       {"quant.rules=[{layers: 'layers.*.*.*', weights: {dtype: ternary, scheme: ternary, granularity: channel, "
        "master: "
        "bf16}, " +
            tokens + "}]",
        "optim.moments=int8", "~optim.clip_norm", "batch.micro=4"}},
      {"bf16 between layers", {"model.values=bf16"}},
  };
  return forms;
}

class LanguageFolder {
 public:
  LanguageFolder() {
    std::ofstream(folder_.file("a.txt"))
        << "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows "
           "of outrageous fortune, or to take arms against a sea of troubles, and by opposing end them. to die, to "
           "sleep, no more.";
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // 8 steps of 4 windows in two microbatches, every bit defined. Commas end documents.
  RunConfig config(std::string model, std::vector<std::string> overrides = {}, bool recompute = false) const {
    model.replace(model.find("$R"), 2, recompute ? "true" : "false");
    if (std::erase(overrides, kInt8Gradients) > 0)
      for (size_t at = 0; (at = model.find("{linear: {out: ", at)) != std::string::npos; at += 20)
        model.replace(at, 10, "{linear: {backward: {gx: int8, gw: int8}, ");
    return parse_config(
        "version: 1\nrun: {name: language, seed: 9, bits: strict}\ndata:\n  root: " + folder_.path() +
            "\n  tokenizer: chars\n"
            "  train: {format: tokens, file: a.txt, context: 12, order: random, documents: apart, end: 2}\n"
            "  test: {format: tokens, file: a.txt, context: 12, documents: apart, end: 2}\n" +
            model +
            "batch: {global: 4, micro: 2}\n"
            "optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: matrices, clip_norm: 1}\n"
            "train: {stop: 8 steps, eval: {every: 4 steps, batch: 3}}\ncheckpoint: {every: 3 steps}\n",
        "language.yaml", overrides);
  }

 private:
  TempDir folder_{memory_or_disk()};
};

}  // namespace bitgrad::test
