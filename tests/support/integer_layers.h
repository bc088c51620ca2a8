// Models of layers that become networks of integers (nn/integer_graph.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "support/integer_nets.h"
#include "support/numbers.h"

namespace bitgrad::test::integer_layers {

using LayerKeys = std::map<std::string, Attribute>;

inline LayerSpec layer(const std::string& kind, const LayerKeys& keys = {}) {
  LayerSpec spec;
  spec.kind = kind;
  for (const auto& [key, value] : keys) spec.attributes[key] = value;
  return spec;
}
inline LayerSpec conv(int64_t out, LayerKeys keys = {}) {
  keys["out"] = out;
  if (!keys.contains("kernel")) {
    keys["kernel"] = std::vector<int64_t>{3, 3};
    if (!keys.contains("padding")) keys["padding"] = int64_t{1};
  }
  return layer("conv2d", keys);
}
inline LayerSpec with_lists(LayerSpec spec, std::vector<LayerList> lists) {
  spec.lists = std::move(lists);
  return spec;
}

// A model of layers with a recipe, its numbers drawn.
struct IntegerLayers {
  IntegerLayers(std::vector<LayerSpec> layers, const Shape& sample, const std::string& recipe = "int8",
                OutputRounding rounding = OutputRounding::kDouble, uint64_t seed = 3)
      : samples(sample), seed_(seed) {
    ModelSpec spec;
    spec.input.sample = sample;
    spec.layers = std::move(layers);
    model = make_model(spec);
    state.seed = seed;
    model->initialize(kModelRoot, state);
    spread();
    LayerQuant quant = find_recipe(recipe);
    quant.output_rounding = rounding;
    quant.observer->name = "min_max";
    PrepareSpec prepared;
    prepared.all = quant;
    prepare(*model, prepared);
    Form in = form();
    in.samples = 16;
    model->plan(in);
  }
  Form form() const {
    Form in;
    in.sample = samples;
    in.training = false;
    return in;
  }
  Tensor batch(int64_t n, uint64_t seed) const {
    std::vector<int64_t> dims{n};
    dims.insert(dims.end(), samples.dims().begin(), samples.dims().end());
    return random_tensor(Shape(dims), dtypes::fp32, seed, -1.5, 2.5);
  }
  void calibrate() { bitgrad::calibrate(*model, state, std::vector<Tensor>{batch(16, 77)}); }
  inference::Graph graph() { return inference::deployed(*model, form()); }

  Shape samples;
  StepState state;
  std::shared_ptr<Sequential> model;

 private:
  // Biases, statistics and factors of norms that are not their first values; factors of both signs.
  void spread() {
    uint64_t seed = 100 + seed_;
    for (const Module::Buffer& b : model->buffers()) {
      const bool var = b.path.ends_with("running_var");
      b.tensor.copy_from(random_tensor(b.tensor.shape(), dtypes::fp32, ++seed, var ? 0.3 : -0.5, var ? 2 : 0.5));
    }
    for (Parameter* p : model->parameters()) {
      const bool factor = p->path().ends_with("gamma"),
                 vector = factor || p->path().ends_with("beta") || p->path().ends_with("bias");
      if (vector)
        p->assign(random_tensor(p->shape(), dtypes::fp32, ++seed, factor ? -1.5 : -0.6, factor ? 1.5 : 0.6), 0);
    }
  }
  uint64_t seed_;
};

// A value, which every branch reads, behind `first`; empty: the input itself.
inline std::vector<LayerSpec> read_twice(std::vector<LayerSpec> first, std::vector<std::vector<LayerSpec>> branches) {
  std::vector<LayerList> lists;
  lists.reserve(branches.size());
  for (std::vector<LayerSpec>& each : branches) lists.emplace_back(std::to_string(lists.size()), std::move(each));
  first.push_back(with_lists(layer("branches", {{"join", std::string("add")}}), std::move(lists)));
  first.push_back(layer("flatten"));
  first.push_back(layer("linear", {{"out", int64_t{3}}}));
  return first;
}

// Two readers of one value behind each kind of operation that has no codes of its own.
inline std::map<std::string, std::vector<LayerSpec>> shared_values() {
  const LayerSpec relu = layer("relu"), bound = layer("hardtanh"), end = conv(4), flat = layer("flatten"),
                  pool = layer("max_pool", {{"size", int64_t{3}}, {"stride", int64_t{1}}, {"padding", int64_t{1}}}),
                  mean = layer("avg_pool", {{"size", int64_t{3}}, {"stride", int64_t{1}}, {"padding", int64_t{1}}}),
                  dense = layer("linear", {{"out", int64_t{6}}}),
                  both = with_lists(layer("branches", {{"join", std::string("concat")}}),
                                    {LayerList("0", {relu}), LayerList("1", {})});
  return {{"relu", read_twice({conv(5)}, {{relu, end}, {end}})},
          {"relu and max_pool", read_twice({conv(5)}, {{relu, end}, {pool, end}})},
          {"max_pool", read_twice({conv(5), layer("batch_norm")}, {{end}, {pool, end}})},
          {"relu behind max_pool", read_twice({conv(5)}, {{pool, relu, end}, {relu, pool, end}})},
          {"hardtanh", read_twice({conv(5)}, {{bound, end}, {relu, end}})},
          {"avg_pool", read_twice({conv(5)}, {{mean, end}, {relu, end}})},
          {"a value of avg_pool", read_twice({conv(5), mean}, {{pool, end}, {relu, end}})},
          {"concat", read_twice({conv(5)}, {{both, end}, {pool, end}})},
          {"concat and its part", read_twice({conv(5), both}, {{relu, end}, {pool, end}})},
          {"reshape", read_twice({conv(5)}, {{flat, dense}, {pool, flat, dense}})},
          {"the input", read_twice({}, {{end}, {relu, end}})},
          {"the input behind max_pool", read_twice({}, {{pool, end}, {relu, end}})},
          {"the input, reshaped", read_twice({}, {{flat, dense}, {pool, relu, flat, dense}})},
          {"a sum", read_twice({conv(5), with_lists(layer("residual"), {LayerList("body", {conv(5)})})},
                               {{pool, end}, {relu, end}})}};
}

// Graphs of a third of them: each of three rules has others.
inline std::vector<NamedGraph> shared_nets(OutputRounding rule) {
  const DeviceGuard host(Device::cpu());
  std::vector<NamedGraph> out;
  int64_t number = 0;
  for (const auto& [name, layers] : shared_values()) {
    if (number++ % 3 != static_cast<int64_t>(rule) % 3) continue;
    IntegerLayers net(layers, {6, 5, 3}, "int8", rule);
    net.calibrate();
    out.push_back({concat(name, ", ", enum_name(rule)), net.graph()});
  }
  return out;
}

}  // namespace bitgrad::test::integer_layers
