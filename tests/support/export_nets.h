// Small networks with every scheme that exports support, trained for a few steps on generated digits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/run/trainer.h"

namespace bitgrad::test {

struct ExportNet {
  std::string name;
  std::string model;  // YAML of the list of layers
  std::string quant;  // YAML of the group `quant`, on one line
  // What graph targets make of it. "rounded": sums of floats, in an order of the client's, or a rule at ties.
  struct {
    std::string onnx, qdq, qonnx, c;
  } becomes = {};
};

inline const std::string kBinaryWeights =
    "weights: {dtype: bint1, scheme: binary, init: \"uniform(-1,1)\", latent_clamp: 1}";

// Two linear layers, each preceded by `quantizer`, with `middle` between them.
inline std::string mlp(const std::string& quantizer, const std::string& middle = "{batch_norm: {}}, ") {
  return "[" + quantizer + "{linear: {out: 32, bias: false}}, " + middle + quantizer + "{linear: {out: 10}}]";
}

inline const std::vector<ExportNet>& export_nets() {
  const std::string q = "{quantize: {}}, ", relu = "{batch_norm: {}}, {relu: {}}, ";
  static const std::vector<ExportNet> nets{
      {"fp32 mlp", mlp("", relu), "", {"rounded", "rounded", "rounded", "rounded"}},
      {"w1a1 mlp",
       "[" + q + "{linear: {out: 40, bias: false}}, {batch_norm: {}}, " + q +
           "{linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       kBinaryWeights + ", activations: {dtype: bint1, scheme: binary}",
       {"exact", "exact", "rounded", "exact"}},
      {"w2a2 mlp",
       mlp(q),
       "weights: {dtype: ternary, scheme: fixed, scale: 1}, activations: {dtype: ternary, scheme: fixed, scale: 1}",
       {"exact", "exact", "rounded", "exact"}},
      {"int8 mlp",
       mlp(q, relu),
       "weights: {dtype: int8, scheme: absmax, granularity: channel}, activations: {dtype: int8, scheme: absmax, "
       "observer: {name: min_max}}",
       {"exact", "rounded", "rounded", "exact"}},
      {"int8 mlp, integers",
       "[" + q + "{linear: {out: 32}}, {relu: {}}, " + q + "{linear: {out: 10}}, {dequantize: {}}]",
       "weights: {dtype: int8, scheme: absmax, granularity: channel}, activations: {dtype: int8, scheme: absmax, "
       "observer: {name: min_max}}, compute: integer_out",
       {"exact", "refused", "refused", "exact"}},
      {"affine uint8 mlp",
       mlp(q, relu),
       "weights: {dtype: int8, scheme: affine, granularity: channel}, activations: {dtype: uint8, scheme: affine, "
       "observer: {name: min_max}}",
       {"exact", "rounded", "rounded", "exact"}},
      {"int8 mlp, scales of tokens",
       mlp(q, relu),
       "weights: {dtype: int4, scheme: symmetric, granularity: channel}, activations: {dtype: int8, scheme: absmax, "
       "granularity: token}",
       {"exact", "rounded", "refused", "refused"}},
      {"int4 groups",
       mlp("", relu),
       "weights: {dtype: int4, scheme: symmetric, granularity: group(16)}",
       {"rounded", "rounded", "refused", "rounded"}},
      {"uint4 groups with offsets",
       mlp("", relu),
       "weights: {dtype: uint4, scheme: minmax_offset, granularity: group(32)}",
       {"rounded", "rounded", "refused", "rounded"}},
      {"int2 channel weights",
       mlp("", relu),
       "weights: {dtype: int2, scheme: absmax, granularity: channel}",
       {"rounded", "rounded", "rounded", "rounded"}},
      {"nf4 weights",
       mlp("", relu),
       "weights: {dtype: nf4, scheme: codebook, granularity: group(16)}",
       {"rounded", "rounded", "refused", "rounded"}},
      {"lsq w4a4 conv",
       "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: lsq}}, {conv2d: {out: 8, kernel: 3, stride: 2, padding: "
       "same, bias: false}}, "
       "{batch_norm: {}}, {relu: {}}, "
       "{residual: {body: [" +
           q +
           "{conv2d: {out: 8, kernel: 3, padding: 1}}, {batch_norm: {}}, {relu: {}}]}}, "
           "{residual: {body: [" +
           q +
           "{conv2d: {out: 12, kernel: 3, stride: 2, padding: 1}}, {batch_norm: {}}], shortcut: [{shortcut_a: {out: "
           "12, stride: 2}}]}}, {relu: {}}, "
           "{global_avg_pool: {}}, {linear: {out: 10}}]",
       "weights: {dtype: int4, scheme: lsq}, activations: {dtype: uint4, scheme: lsq}",
       {"rounded", "rounded", "rounded", "rounded"}},
      {"binary cnv",
       "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}}, {conv2d: {out: 8, kernel: 3, "
       "bias: false}}, {batch_norm: {}}, " +
           q + "{conv2d: {out: 8, kernel: 3, padding: 1, bias: false}}, {batch_norm: {}}, " + q +
           "{max_pool: {size: 2}}, {conv2d: {out: 8, kernel: 3, stride: 2, padding: 1, pad_value: 1, bias: false}}, "
           "{batch_norm: {}}, " +
           q + "{flatten: {}}, {linear: {out: 24, bias: false}}, {batch_norm: {}}, " + q +
           "{linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       kBinaryWeights + ", activations: {dtype: bint1, scheme: binary}",
       {"exact", "exact", "rounded", "exact"}},
      {"resnet20 w4a4",
       "{preset: resnet20, keys: {width: 4}}",
       "rules: [{layers: \"*\", weights: {dtype: int4, scheme: lsq}, activations: {dtype: uint4, scheme: lsq}}, "
       "{layers: layers.0.0, weights: {dtype: int8, scheme: lsq}, activations: {dtype: int8, scheme: lsq}}]",
       {"rounded", "rounded", "rounded", "exact"}},
      {"norms of rows, gates",
       "[{layer_norm: {}}, {linear: {out: 32}}, {rms_norm: {}}, {linear: {out: 24}}, {swiglu: {}}, "
       "{linear: {out: 16}}, {geglu: {}}, {layer_norm: {bias: false}}, {linear: {out: 10}}]",
       "weights: {dtype: int8, scheme: absmax, granularity: channel}",
       {"rounded", "rounded", "rounded", "refused"}},
      {"int8 conv, scales of a batch",
       "[{unsqueeze: {}}, {conv2d: {out: 8, kernel: 3}}, {relu: {}}, {quantize: {observer: {name: none}}}, "
       "{conv2d: {out: 8, kernel: 3, stride: 2}}, {relu: {}}, {max_pool: {size: 2}}, {quantize: {observer: {name: "
       "none}}}, "
       "{flatten: {}}, {linear: {out: 10}}]",
       "weights: {dtype: int8, scheme: absmax, granularity: channel}, activations: {dtype: int8, scheme: absmax}",
       {"rounded", "rounded", "refused", "refused"}},
      {"w8a8_static conv",
       "[{unsqueeze: {}}, {conv2d: {out: 8, kernel: 3}}, {batch_norm: {}}, {relu: {}}, {max_pool: {size: 2}}, {conv2d: "
       "{out: 8, kernel: 3, stride: 2}}, {relu: {}}, {flatten: {}}, {linear: {out: 10}}]",
       "recipe: w8a8_static",
       {"exact", "rounded", "rounded", "exact"}},
      {"branches, prelu, pools",
       "[{conv2d: {out: 6, kernel: [3, 2], stride: 2, groups: 1}}, {branches: {join: add, layers: [[{prelu: {}}], "
       "[{shift: {}}, {hardtanh: {}}], []]}}, {avg_pool: {size: 2, padding: 1}}, "
       "{max_pool: {size: 3, stride: 2, padding: 1}}, {conv2d: {out: 12, kernel: 3, groups: 6, padding: 1}}, "
       "{branches: {join: concat, layers: [[{sigmoid: {}}], [{tanh: {}}]]}}, {flatten: {}}, {linear: {out: 10}}]",
       "weights: {dtype: int8, scheme: absmax}",
       {"rounded", "rounded", "rounded", "refused"}},
  };
  return nets;
}

inline std::string yaml_of(const ExportNet& net, const std::string& steps = "4 steps") {
  const std::string model = net.model.starts_with('[') ? "{layers: " + net.model + "}" : net.model;
  return "version: 1\nrun: {name: export, seed: 7}\ndata: {train: {format: digits, size: 80}, affine: [2, "
         "-1]}\nmodel: " +
         model + "\n" + (net.quant.empty() ? "" : "quant: {" + net.quant + "}\n") +
         "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: " + steps + "}\n";
}

// Trains and converts the network.
inline std::unique_ptr<Trainer> trained(const ExportNet& net) {
  auto trainer = std::make_unique<Trainer>(parse_config(yaml_of(net), net.name + ".yaml"));
  trainer->run("");
  trainer->learner().convert();
  return trainer;
}

inline const ExportNet& export_net(const std::string& name) {
  for (const ExportNet& net : export_nets())
    if (net.name == name) return net;
  throw Error("no network " + name);
}

}  // namespace bitgrad::test
