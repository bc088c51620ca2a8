#include <string_view>

#include "bench_step.h"

namespace bitgrad::bench {
namespace {

struct NamedYaml {
  std::string_view name;
  const char* yaml;
};

// A configuration must name its data; none is read here. CNV: Umuroglu et al. 2017 (arXiv 1612.07119), with the recipe
// of brevitas. ResNet-20: Qin et al. 2020 (IR-Net, arXiv 1909.10788).
constexpr NamedYaml kYamls[] = {{"cnv", R"yaml(version: 1
run: {name: bench_cnv, seed: 1, bits: fast}
data: {train: {format: digits, size: 50000}}
model:
  blocks:
    unit: {keys: {c: required}, layers: [{conv2d: {out: $c, kernel: 3, bias: false}}, {batch_norm: {eps: 1e-4}}, {quantize: {}}]}
    fc: {keys: {c: required}, layers: [{linear: {out: $c, bias: false}}, {batch_norm: {eps: 1e-4}}, {quantize: {}}]}
  layers:
    - quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}
    - unit: {c: 64}
    - unit: {c: 64}
    - max_pool: {size: 2}
    - unit: {c: 128}
    - unit: {c: 128}
    - max_pool: {size: 2}
    - unit: {c: 256}
    - unit: {c: 256}
    - flatten: {}
    - fc: {c: 512}
    - fc: {c: 512}
    - linear: {out: 10, bias: false}
    - tensor_norm: {}
quant:
  weights: {dtype: bint1, scheme: binary, ste: identity, init: "uniform(-1,1)", latent_clamp: 1}
  activations: {dtype: bint1, scheme: binary, ste: clip}
batch: {global: 100}
loss: squared_hinge
optim: {name: adam, lr: 0.02}
train: {stop: 1000 epochs}
)yaml"},
                                {"resnet20", R"yaml(version: 1
run: {name: bench_resnet20, seed: 1, bits: fast}
data: {train: {format: digits, size: 50000}}
model:
  blocks:
    unit: {keys: {c: required, s: 1}, layers: [{residual: {body: [{quantize: {}}, {conv2d: {out: $c, kernel: 3, stride: $s, padding: 1, bias: false}}, {batch_norm: {}}], shortcut: [{shortcut_a: {out: $c, stride: $s}}]}}, {hardtanh: {}}]}
  layers:
    - conv2d: {out: 16, kernel: 3, padding: 1, bias: false, weights: {dtype: fp32}, backward: {gx: fp32, gw: fp32}}
    - batch_norm: {}
    - hardtanh: {}
    - repeat: {times: 6, layers: [{unit: {c: 16}}]}
    - unit: {c: 32, s: 2}
    - repeat: {times: 5, layers: [{unit: {c: 32}}]}
    - unit: {c: 64, s: 2}
    - repeat: {times: 5, layers: [{unit: {c: 64}}]}
    - global_avg_pool: {}
    - batch_norm: {}
    - linear: {out: 10, weights: {dtype: fp32}, backward: {gx: fp32, gw: fp32}}
quant:
  weights: {dtype: bint1, scheme: standardized_binary, ste: tanh, ste_t: [1e-3, 10], init: he_normal}
  activations: {dtype: bint1, scheme: binary, ste: tanh, ste_t: [1e-3, 10]}
batch: {global: 128}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 1e-4}
schedule: {name: cosine}
train: {stop: 400 epochs}
)yaml"}};

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

std::string net_yaml(const std::string& name) {
  for (const NamedYaml& y : kYamls)
    if (name == y.name) return y.yaml;
  return gpt_yaml(name);
}

std::string gpt_yaml(const std::string& name) {
  for (const Size& size : kSizes) {
    if (name == size.name) return yaml_of(size, {});
    for (const Weights& w : kWeights)
      if (name == std::string(size.name) + std::string(w.suffix)) return yaml_of(size, w.spec);
  }
  return {};
}

}  // namespace bitgrad::bench
