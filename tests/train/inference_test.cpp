// What a model states that it computes (Module::lower) is what it computes, bit for bit.
#include <cstring>
#include <map>
#include <set>

#include "bitgrad/nn/inference.h"
#include "bitgrad/nn/layers.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/export_nets.h"
#include "support/inference_run.h"
#include "train/small_gpt.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor digits(const RunConfig& config, const Form& form, int64_t n) {
  const auto data = open_dataset(config, config.data.train);
  std::vector<int64_t> dims{n};
  for (const int64_t d : form.sample.dims()) dims.push_back(d);
  Tensor x = Tensor::empty(Shape(dims), dtypes::fp32);
  int32_t label = 0;
  for (int64_t i = 0; i < n; ++i) data->sample(i, x.as<float>() + i * form.sample.numel(), &label);
  return x;
}

}  // namespace

TEST_CASE("The operations that a model states compute what it computes, bit for bit") {
  const KeepModes keep;
  for (const ExportNet& net : export_nets()) {
    INFO(net.name);
    const auto trainer = trained(net);
    set_bits_mode(BitsMode::kStrict);
    Learner& learner = trainer->learner();
    const inference::Graph graph = inference::lowered(learner.model(), *learner.input());
    const Tensor x = digits(trainer->config(), *learner.input(), 7);
    const Tensor expected = learner.predict(x), got = InferenceRun(graph, x).output();
    REQUIRE(got.shape() == expected.shape());
    CHECK(std::memcmp(got.data(), expected.data(), static_cast<size_t>(expected.bytes())) == 0);
  }
}

TEST_CASE("The operations that a language model states compute what it computes, bit for bit") {
  const KeepModes keep;
  const std::string interleaved = kAttentionKeys + "interleaved=true";
  for (const Strings& keys :
       {Strings{}, Strings{kRope}, Strings{kRope, interleaved}, Strings{kRope, kHeadNorm}, Strings{kRope, kRowNorm},
        Strings{kAttentionKeys + "window=5", kAttentionKeys + "scale=0.4", "model.layers.0.embedding.scale=3"},
        Strings{kAttentionKeys + "softcap=0.5", "model.layers.2.repeat.layers.0.residual.scale=0.5"},
        Strings{
            in_blocks("weights: {dtype: int4, scheme: symmetric, granularity: group(16)}, activations: {dtype: int8, "
                      "scheme: absmax, granularity: token}")},
        Strings{"quant.rules=[{layers: layers.0, weights: {dtype: int8, scheme: absmax, granularity: channel}}]"}}) {
    INFO(Catch::StringMaker<Strings>::convert(keys));
    const auto learner = gpt_learner(keys);
    learner->convert();
    set_bits_mode(BitsMode::kStrict);
    const inference::Graph graph = inference::lowered(learner->model(), *learner->input());
    const Tensor x = ids_tensor(some_ids(3 * kGptContext), 3);
    const Tensor expected = learner->predict(x), got = InferenceRun(graph, x).output();
    REQUIRE(got.shape() == expected.shape());
    CHECK(std::memcmp(got.data(), expected.data(), static_cast<size_t>(expected.bytes())) == 0);
  }
}

TEST_CASE("Every kind of layer states what it computes, or is listed as one that does not") {
  const KeepModes keep;
  const std::set<std::string> without{};  // kinds that exports refuse
  const std::map<std::string, std::string> keys{{"linear", "out: 4"},
                                                {"conv2d", "out: 4, kernel: 3"},
                                                {"max_pool", "size: 2"},
                                                {"avg_pool", "size: 2"},
                                                {"shortcut_a", "out: 4, stride: 2"},
                                                {"dropout", "p: 0.5"},
                                                {"quantize", "dtype: int8, scheme: fixed, scale: 0.5"},
                                                {"quantize_gradient", "dtype: uint8, scheme: dorefa_gradient"},
                                                {"softcap", "cap: 2"},
                                                {"sequence", "layers: [{tanh: {}}]"},
                                                {"branches", "layers: [[], [{tanh: {}}]]"}};
  for (const LayerKind* kind : layer_kinds()) {
    const std::string& name = kind->name;
    // Kinds of other tests; and those of a language model, which is lowered above.
    if (name.find("_test_") != std::string::npos || std::string(kSmallGpt).find("- " + name + ":") != std::string::npos)
      continue;
    INFO(name);
    const auto own = keys.find(name);
    const std::string layer = "{" + name + ": {" + (own == keys.end() ? "" : own->second) + "}}";
    const auto trainer = trained({name, "[" + layer + ", {flatten: {}}, {linear: {out: 10}}]", ""});
    const std::string error =
        error_of([&] { inference::lowered(trainer->learner().model(), *trainer->learner().input()); });
    CHECK(error.empty() == (without.count(name) == 0));
  }
}

#define CHECK_ERROR(call, text)                   \
  do {                                            \
    const std::string error = error_of(call);     \
    INFO(error);                                  \
    CHECK(error.find(text) != std::string::npos); \
  } while (false)

TEST_CASE("What has no meaning beside training is refused by the layer's path") {
  const auto lower = [](const std::string& model, const std::string& quant) {
    const auto trainer = std::make_unique<Trainer>(parse_config(yaml_of({"x", model, quant}), "x.yaml"));
    inference::lowered(trainer->learner().model(), *trainer->learner().input());
  };
  CHECK_ERROR([&] { lower(mlp("{quantize: {}}, "), "activations: {dtype: uint4, scheme: lsq}"); },
              "layer 0: [quantize] its learned step was never set");
  CHECK_ERROR(
      [&] {
        lower(
            "[{quantize: {}}, {linear: {out: 9}}, {quantize: {}}, {linear: {out: 10}}, {dequantize: {}}]",
            "weights: {dtype: int8, scheme: absmax}, activations: {dtype: int8, scheme: absmax}, compute: integer_out");
      },
      "found from each batch");
  struct Own final : Module {
    Var forward(const Var& x) override { return x; }
    Form plan(const Form& in, PlanRequests&) override { return in; }
  };
  const auto own = make_layers({});
  own->append(std::make_shared<Own>());
  StepState state;
  own->initialize(kModelRoot, state);
  CHECK_ERROR([&] { inference::lowered(*own, Form{.sample = {4}}); }, "layer 0: [module] has no form in ONNX or C");
}
