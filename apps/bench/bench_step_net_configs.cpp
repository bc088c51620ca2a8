#include <string_view>

#include "bench_step_net.h"

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

}  // namespace

std::string net_yaml(const std::string& name) {
  for (const NamedYaml& y : kYamls)
    if (name == y.name) return y.yaml;
  return gpt_yaml(name);
}

}  // namespace bitgrad::bench
