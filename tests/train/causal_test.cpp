// What mixes the rows of a batch has no place in a causal model: refused by plans and by configurations.
#include "bitgrad/nn/layers.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("what mixes rows is refused in a causal model where the plan is made") {
  const auto layer = [](const std::string& kind, Attributes keys) {
    LayerSpec spec;
    spec.kind = kind;
    spec.attributes = std::move(keys);
    return spec;
  };
  const auto error = [&](const LayerSpec& extra, bool causal = true) {
    ModelSpec spec;
    spec.input.sample = {5};
    spec.input.dtype = dtypes::int32;
    spec.input.ids = 9;
    spec.layers = {layer("embedding", {{"num", 9}, {"dim", 12}, {"flat", false}}), extra,
                   layer("linear", {{"out", 12}})};
    if (causal) spec.layers.push_back(layer("attention", {{"heads", 2}}));
    return error_of([&] { make_model(spec)->plan(spec.input); });
  };
  CHECK(contains(error(layer("batch_norm", {})),
                 "layer 1: [batch_norm] the model is causal, and this layer uses statistics of the whole batch, "
                 "including later positions. Use layer_norm or rms_norm"));
  CHECK(contains(error(layer("tensor_norm", {})), "[tensor_norm] the model is causal"));
  CHECK(error(layer("batch_norm", {}), false).empty());
  const auto quantize = [&](const QuantSpec& spec) {
    LayerSpec q = layer("quantize", {});
    q.activation = ActivationQuant{spec};
    return q;
  };
  QuantSpec spec{.dtype = dtypes::int8, .scheme = "absmax"};
  CHECK(contains(error(quantize(spec)),
                 "layer 1: [quantize] the model is causal, and these scales are found from the whole batch, later "
                 "positions too: got int8, scheme absmax, granularity tensor. Use granularity: token, an observer, or "
                 "a scheme that learns its step, such as lsq"));
  CHECK(error(quantize(spec), false).empty());
  spec.granularity = Granularity::channel(1);
  CHECK(contains(error(quantize(spec)), "granularity channel(1)"));
  for (const Granularity& good : {Granularity::token(), Granularity::groups(4)}) {
    spec.granularity = good;
    CHECK(error(quantize(spec)).empty());
  }
  CHECK(error(quantize({.dtype = dtypes::bint1, .scheme = "binary"})).empty());  // scale 1
  CHECK(error(quantize({.dtype = dtypes::int4, .scheme = "lsq"})).empty());
  LayerSpec observed = quantize({.dtype = dtypes::int8, .scheme = "absmax"});
  observed.activation->observer = ObserverSpec{};
  CHECK(error(observed).empty());
}

TEST_CASE("what mixes rows is refused in a configuration, with line and column") {
  const auto at = [](const Strings& overrides, const std::string& find, const std::string& put) {
    std::string text = kSmallGpt;
    if (!find.empty()) text.replace(text.find(find), find.size(), put);
    return std::pair{places(text, overrides), error_of([&] { parse_config(text, "gpt.yaml", overrides); })};
  };
  const auto [place, text] = at({}, "- gelu: {}", "- batch_norm: {}");
  CHECK(place == "25:19");
  CHECK(contains(text,
                 "gpt.yaml:25:19: error: model.layers.2.repeat.layers.1.residual.body.2.batch_norm: batch_norm: "
                 "the model is causal"));
  const std::string quant =
      "quant:\n  rules:\n    - {layers: \"layers.2.0.*\", weights: {dtype: int8, scheme: absmax}, activations: "
      "{dtype: int8, scheme: absmax, observer: {name: none}}}\nbatch:";
  const auto [rule_place, rule_text] = at({}, "batch:", quant);
  CHECK(rule_place == "31:16");
  CHECK(contains(rule_text, "these scales are found from the whole batch"));
  const auto [own_place, own_text] = at({"quant.activations={dtype: int8, scheme: absmax, observer: {name: none}}"},
                                        "- gelu: {}", "- quantize: {granularity: tensor}");
  CHECK(own_place == "25:19");
  CHECK(contains(own_text, "quantize: the model is causal"));
  CHECK(at({}, "", "").first.empty());
}

TEST_CASE("documents apart need a model with attention, at the key of each data set") {
  const std::string bare = "model.layers=[{embedding: {num: 33, dim: 4, flat: false}}, {linear: {out: 33}}]";
  const auto at = [](const std::string& line, const Strings& overrides) {
    std::string text = kSmallGpt;
    const std::string found = line + ": {format: tokens, file: a.txt, context: 40";
    text.insert(text.find(found) + found.size(), ", documents: apart, end: 2");
    return std::pair{places(text, overrides), error_of([&] { parse_config(text, "gpt.yaml", overrides); })};
  };
  for (const auto& [line, place] : {std::pair{"train", "6:64"}, {"test", "7:63"}}) {
    const auto [where, text] = at(line, {bare});
    CHECK(where == place);
    CHECK(contains(text, concat("gpt.yaml:", place, ": error: data.", line,
                                ".documents: got apart, which is what attention sees, and the model has no attention "
                                "layer. Expected joined, or a model with attention")));
    CHECK(at(line, {}).first.empty());
    CHECK(at(line, {bare, concat("data.", line, ".documents=joined"), concat("data.", line, ".end=-1")}).first.empty());
  }
}
