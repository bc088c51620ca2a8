// Small convolutional networks of each published form, on images of bytes with augmentation: 20 steps, 5 an epoch.
#pragma once

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "support/npy_bytes.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

namespace bitgrad::test {

struct ImageNetwork {
  std::string name, rest;      // rest: model, quant, loss and optim
  bool low_bit_inputs = true;  // of every product
};

// CNV of FINN: images as int8 codes, signs of weights and activations, norm and sign behind integers, a pool on signs.
inline const ImageNetwork kCnvNet = {"CNV", R"yaml(model:
  blocks:
    conv: {keys: {c: required}, layers: [{conv2d: {out: $c, kernel: 3, bias: false}}, {batch_norm: {eps: 1e-4}}, {quantize: {}}]}
  layers:
    - quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}
    - conv: {c: 16}
    - conv: {c: 20}
    - max_pool: {size: 2}
    - conv: {c: 24}
    - flatten: {}
    - linear: {out: 20, bias: false}
    - batch_norm: {eps: 1e-4}
    - quantize: {}
    - linear: {out: 4, bias: false}
    - tensor_norm: {}
quant:
  weights: {dtype: bint1, scheme: binary, ste: identity, init: "uniform(-1,1)", latent_clamp: 1}
  activations: {dtype: bint1, scheme: binary, ste: clip}
loss: squared_hinge
optim: {name: adam, lr: 0.02}
schedule: {name: step, every: 1 epochs, factor: 0.5}
)yaml"};

// IR-Net's units: signs of standardized weights, slopes that sharpen with the epochs, shortcuts without weights.
inline const ImageNetwork kIrNet = {"IR-Net", R"yaml(model:
  blocks:
    unit:
      keys: {c: required, s: 1}
      layers:
        - residual:
            body: [{quantize: {}}, {conv2d: {out: $c, kernel: 3, stride: $s, padding: 1, bias: false}}, {batch_norm: {}}]
            shortcut: [{shortcut_a: {out: $c, stride: $s}}]
        - hardtanh: {}
  layers:
    - conv2d: {out: 8, kernel: 3, padding: 1, bias: false, weights: {dtype: fp32}}
    - batch_norm: {}
    - hardtanh: {}
    - unit: {c: 8}
    - unit: {c: 16, s: 2}
    - global_avg_pool: {}
    - batch_norm: {}
    - linear: {out: 4, weights: {dtype: fp32}}
quant:
  weights: {dtype: bint1, scheme: standardized_binary, ste: tanh, ste_t: [1e-3, 10], init: he_normal}
  activations: {dtype: bint1, scheme: binary, ste: tanh, ste_t: [1e-3, 10]}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 1e-4}
schedule: {name: cosine}
)yaml",
                                    false};

// A unit of ResNet-20 with learned steps of 4 bits.
inline const ImageNetwork kLsqNet = {"LSQ W4A4", R"yaml(model:
  blocks:
    conv: {keys: {c: required, s: 1}, layers: [{quantize: {}}, {conv2d: {out: $c, kernel: 3, stride: $s, padding: 1, bias: false}}, {batch_norm: {}}]}
    unit:
      keys: {c: required, s: 1}
      layers:
        - residual: {body: [{conv: {c: $c, s: $s}}, {relu: {}}, {conv: {c: $c}}], shortcut: [{shortcut_a: {out: $c, stride: $s}}]}
        - relu: {}
  layers:
    - quantize: {dtype: int8}
    - conv2d: {out: 8, kernel: 3, padding: 1, bias: false, weights: {dtype: int8}}
    - batch_norm: {}
    - relu: {}
    - unit: {c: 12, s: 2}
    - global_avg_pool: {}
    - quantize: {dtype: uint8}
    - linear: {out: 4, weights: {dtype: int8}}
quant:
  weights: {dtype: int4, scheme: lsq, init: he_normal, learned: {lr_factor: 0.1}}
  activations: {dtype: uint4, scheme: lsq, learned: {lr_factor: 0.1}}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.04, momentum: 0.9, weight_decay: 1e-4}
schedule: {name: cosine}
)yaml"};

// Separable convolutions of MobileNet on affine uint8, with a group of two channels and zero points beside the padding.
inline const ImageNetwork kDepthwiseNet = {"depthwise", R"yaml(model:
  layers:
    - quantize: {dtype: int8}
    - conv2d: {out: 8, kernel: 3, stride: 2, padding: 1, bias: false}
    - batch_norm: {}
    - relu: {}
    - quantize: {}
    - conv2d: {out: 8, kernel: 3, padding: 1, groups: 8, bias: false}
    - batch_norm: {}
    - quantize: {dtype: int8, scheme: affine}
    - conv2d: {out: 12, kernel: 1, bias: false}
    - batch_norm: {}
    - relu: {}
    - quantize: {}
    - conv2d: {out: 12, kernel: 3, stride: 2, padding: 1, groups: 6}
    - global_avg_pool: {}
    - quantize: {}
    - linear: {out: 4}
quant:
  weights: {dtype: int8, scheme: symmetric, granularity: channel, init: he_normal}
  activations: {dtype: uint8, scheme: affine}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.01}
)yaml"};

// 40 images [10, 11, 3] of 4 classes.
class ImageFolder {
 public:
  ImageFolder() {
    std::mt19937 random(9);
    NpyBytes images(40 * 10 * 11 * 3), labels;
    for (size_t i = 0; i < images.size(); ++i) {
      const size_t image = i / (10 * 11 * 3);
      images[i] = static_cast<uint8_t>(random() % 128 + image % 4 * 32);
      if (i % (10 * 11 * 3) == 0) labels.push_back(static_cast<uint8_t>(image % 4));
    }
    write("images.npy", npy("|u1", "(40, 10, 11, 3)", images));
    write("labels.npy", npy("|u1", "(40,)", labels));
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // 20 steps of 8 images in two microbatches, every bit defined.
  RunConfig config(const ImageNetwork& net, const std::vector<std::string>& overrides = {}) const {
    const std::string set = "{format: npy, images: images.npy, labels: labels.npy, classes: 4";
    return parse_config("version: 1\nrun: {name: images, seed: 11, bits: strict}\ndata:\n  root: " + folder_.path() +
                            "\n  train: " + set + ", augment: {crop_pad: 2, flip: true}}\n  test: " + set +
                            ", limit: 12}\n  normalize: {mean: [0.45, 0.4, 0.5], std: [0.25, 0.2, 0.3]}\n" + net.rest +
                            "batch: {global: 8, micro: 4}\ntrain: {stop: 20 steps}\ncheckpoint: {every: 3 steps}\n",
                        "images.yaml", overrides);
  }

 private:
  void write(const std::string& name, const NpyBytes& bytes) const {
    std::ofstream(folder_.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  TempDir folder_{memory_or_disk()};
};

}  // namespace bitgrad::test
