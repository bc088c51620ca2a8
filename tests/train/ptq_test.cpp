// Post-training quantization and conversion of every kind of run that a configuration can say, through their files.
#include "bitgrad/tools/ptq.h"

#include <filesystem>

#include "bitgrad/base/file.h"
#include "bitgrad/tools/budget.h"
#include "config/specs.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/image_networks.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::string> shipped(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs")))
    if (entry.path().filename().string().rfind(prefix, 0) == 0) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Drawn digits in the place of the data, two steps.
RunConfig shortened(const std::string& name, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"data.train={format: digits, size: 40}", "data.test={format: digits, size: 20}",
                           "batch={global: 20, micro: 20}", "train.stop=2 steps", "train.eval.batch=20"});
  if (name == "digits_linear_fp32.yaml") more.push_back("schedule.warmup=1 steps");
  return load_config(source_path("configs/") + name, more);
}

// Trains two steps; the last checkpoint.
std::string trained(const TempDir& temp, const RunConfig& config) {
  const std::string folder = temp.file("run_" + config.run.name);
  std::filesystem::remove_all(folder);
  run_all(config, create_run_folder(config, folder));
  return folder + "/last.safetensors";
}

std::vector<std::string> weights_of(Learner& learner) {
  std::vector<std::string> weights;
  for (const LayerSummary& row : summarize(learner.model())) weights.push_back(row.weight);
  return weights;
}

std::unique_ptr<Learner> opened(const std::string& file, const Dataset& data) {
  return load_evaluator(parse_config(read_checkpoint_header(file).config, file), data, file);
}

// Quantizes, writes, reads again: the same numbers come out.
void check_quantized(const std::string& file, const PrepareConfig& prepare, const std::string& out) {
  RunConfig config =
      float_config(parse_config(read_checkpoint_header(file).config, file, {}, {true, remembered_root(file)}));
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 40, 20, 1);
  const auto learner = load_floats(file, config, *data);
  for (const std::string& weight : weights_of(*learner)) CHECK(weight == "fp32");
  config.quant.prepare = prepare;
  const std::vector<QuantPhase> phases = quant_phases(config, 1);
  quantize_after_training(*learner, *phases.front().spec, samples, samples);
  save_converted(out, *learner, read_checkpoint_header(file), config);
  const auto again = opened(out, *data);
  CHECK(weights_of(*again) == weights_of(*learner));
  CHECK(evaluate(*again, *data, 20).loss == evaluate(*learner, *data, 20).loss);
}

constexpr const char* kWords = "no plan survives contact with the enemy; no text survives contact with a reader.";
// An embedding behind text: its samples are ids.
constexpr const char* kText = R"yaml(version: 1
run: {name: ids, seed: 7}
data:
  root: /nowhere
  train: {format: text, file: a.txt, context: 4, test_fraction: 0.18}
  test: {format: text, file: a.txt, context: 4, test_fraction: 0.18}
model:
  layers:
    - embedding: {num: 30, dim: 8}
    - linear: {out: 12}
    - relu: {}
    - linear: {out: 22}
batch: {global: 9, micro: 9}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs, eval: {batch: 9}}
checkpoint: {every: 1 epochs}
)yaml";
RunConfig text_config(const TempDir& temp, std::vector<std::string> more = {}) {
  write_file_atomically(temp.file("a.txt"), kWords);
  more.insert(more.begin(), "data.root=" + temp.path());
  return small_config(more, kText);
}

}  // namespace

TEST_CASE("models of ids are quantized after training, measured, and get bits under a budget") {
  const KeepModes keep;
  TempDir temp;
  const std::string file = trained(temp, text_config(temp));
  for (const char* recipe : {"int8wo", "w8a8"}) {
    PrepareConfig all;
    all.recipe = recipe;
    check_quantized(file, all, temp.file(recipe));
  }
  const RunConfig config = text_config(temp);
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 20, 9, 1);
  CHECK(samples.front().x.dtype() == dtypes::int32);
  const auto learner = load_floats(file, config, *data);
  const std::vector<WeightChoice> choices{{"int8wo"}, {"int2wo"}};
  const Sensitivity s = measure_sensitivity(*learner, samples, choices, samples);
  REQUIRE(s.layers.size() == 3);
  CHECK(s.layers[0].kind == "embedding");
  for (const LayerSensitivity& layer : s.layers) CHECK(layer.effects[0].noise < layer.effects[1].noise);

  BudgetPlan plan;
  const RunConfig resolved = resolve_budget(
      text_config(temp, {"run.name=budget", "model.init_from=" + file, "quant.budget={bytes: 600, samples: 20}"}),
      &plan);
  CHECK(resolved.quant.prepare.rules.size() == 3);
  CHECK(plan.bytes <= 600);
  const std::string trained_again = trained(temp, resolved);
  CHECK(weights_of(*opened(trained_again, *data)).front() != "fp32");
}

TEST_CASE("ranges of quantize layers are found once, on the quantized layers before them") {
  const KeepModes keep;
  TempDir temp;
  const std::string file = trained(temp, shortened("mnist_mlp_int8_int.yaml"));
  const RunConfig config =
      float_config(parse_config(read_checkpoint_header(file).config, file, {}, {true, remembered_root(file)}));
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 40, 20, 1);
  const auto batches_of = [](Learner& learner) {
    std::vector<int64_t> counts;
    for (const Module::Buffer& b : learner.model().buffers())
      if (b.path.size() > 8 && b.path.substr(b.path.size() - 8) == ".batches")
        counts.push_back(*b.tensor.as<int64_t>());
    return counts;
  };
  const auto learner = load_floats(file, config, *data);
  CHECK(batches_of(*learner) == std::vector<int64_t>{0, 0, 0, 0});
  PrepareSpec spec;
  spec.all = find_recipe("int2wo");
  quantize_after_training(*learner, spec, samples, samples);
  CHECK(batches_of(*learner) == std::vector<int64_t>{2, 2, 2, 2});
}

TEST_CASE("observers replace scales that are found from each batch, and the rest of the input stays") {
  const KeepModes keep;
  RunConfig config = shortened("mnist_mlp_fp32.yaml");
  const auto data = open_dataset(config, config.data.train);
  const auto learner = build_evaluator(config, *data);
  LayerQuant own = find_recipe("w8a8");
  own.recipe = "test_own_input";
  own.input->eps = 0.125f;
  own.input->reduce_range = true;
  own.input_grad = dtypes::bf16;
  register_recipe("test_own_input", own);
  config.quant.prepare.recipe = "test_own_input";
  config.quant.prepare.first = "w2a2";
  config.quant.prepare.last = "8da4w";
  const RunConfig observed = with_observer(config, learner->model(), "percentile");
  CHECK(observed.quant.prepare.recipe == config.quant.prepare.recipe);
  const RunConfig again = parse_config(to_yaml(observed), "again");
  const std::vector<LayerChoice> layers = choose_layers(learner->model(), *quant_phases(again, 1).front().spec);
  REQUIRE(layers.size() == 4);
  CHECK(layers[0].quant->input == find_recipe("w2a2").input);
  CHECK(!layers[0].quant->observer);
  QuantSpec input = *own.input;
  input.granularity = Granularity::tensor();
  input.ste = layers[1].quant->input->ste;
  input.ste_t = layers[1].quant->input->ste_t;
  CHECK(layers[1].quant->input == input);
  CHECK(layers[1].quant->input_grad == dtypes::bf16);
  CHECK(layers[1].quant->observer->name == "percentile");
  CHECK(layers[1].quant->weight == own.weight);
  CHECK(layers[3].quant->weight == find_recipe("8da4w").weight);
  CHECK(layers[3].quant->input->scheme == "affine");

  CHECK(contains(error_of([&] { with_observer(config, learner->model(), "minmax"); }), "Did you mean 'min_max'"));
  config.quant.prepare = {};
  config.quant.prepare.recipe = "int8wo";
  CHECK(contains(error_of([&] { with_observer(config, learner->model(), "min_max"); }), "no layer has an input"));
}

TEST_CASE("a recipe with an input is refused behind a quantize layer, with an alternative") {
  const KeepModes keep;
  TempDir temp;
  const std::string file = trained(temp, shortened("mnist_mlp_int8_int.yaml"));
  PrepareConfig all;
  all.recipe = "w8a8";
  CHECK(contains(error_of([&] { check_quantized(file, all, temp.file("no")); }), "a recipe of weights only"));
}

TEST_CASE("every kind of run is quantized after training, and the file is read") {
  const KeepModes keep;
  TempDir temp;
  std::vector<std::string> names = shipped("mnist_mlp_"), digits = shipped("digits_");
  names.insert(names.end(), digits.begin(), digits.end());
  REQUIRE(names.size() >= 12);
  for (const std::string& name : names) {
    INFO(name);
    const std::string file = trained(temp, shortened(name));
    PrepareConfig all;
    all.recipe = "int8wo";
    check_quantized(file, all, temp.file("all"));
    PrepareConfig mixed;
    mixed.recipe = "int4wo";
    mixed.last = "none";
    check_quantized(file, mixed, temp.file("mixed"));
    PrepareConfig rule;
    rule.recipe = "none";
    rule.rules.push_back({"*[0-9]", {}, {}});
    rule.rules.back().quant.recipe = "int2wo";
    check_quantized(file, rule, temp.file("rule"));
  }
}

// Images of 28 x 28 x 1: a residual block, a depthwise convolution and pools behind a first convolution.
constexpr const char* kConvolutions = R"yaml(version: 1
run: {name: convolutions, seed: 7}
data:
  train: {format: digits, size: 40}
  test: {format: digits, size: 20}
model:
  layers:
    - conv2d: {out: 8, kernel: 3, stride: 2, padding: 1, bias: false}
    - batch_norm: {}
    - residual: {body: [{relu: {}}, {conv2d: {out: 8, kernel: 3, padding: 1, groups: 8}}, {batch_norm: {}}]}
    - max_pool: {size: 2}
    - relu: {}
    - conv2d: {out: 16, kernel: 3, bias: false}
    - global_avg_pool: {}
    - linear: {out: 10}
batch: {global: 20, micro: 20}
optim: {name: sgd, lr: 0.1}
train: {stop: 2 steps, eval: {batch: 20}}
)yaml";

TEST_CASE("convolutions are quantized after training, measured and given a budget") {
  const KeepModes keep;
  TempDir temp;
  const std::string file = trained(temp, parse_config(kConvolutions, "convolutions.yaml"));
  for (const std::string& recipe : recipe_names()) {
    if (recipe == "none") continue;
    INFO(recipe);
    PrepareConfig all;
    all.recipe = recipe;
    check_quantized(file, all, temp.file(recipe));
  }
  const RunConfig config = parse_config(read_checkpoint_header(file).config, file);
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 20, 20, 1);
  const auto learner = load_floats(file, config, *data);
  learner->calibrate(tensors_of(samples));
  const std::vector<WeightChoice> choices{{"int8wo"}, {"int2wo"}};
  const Sensitivity s = measure_sensitivity(*learner, samples, choices, samples);
  CHECK(s.layers.size() == 4);
  for (const LayerSensitivity& layer : s.layers) CHECK(layer.effects[0].noise < layer.effects[1].noise);

  // A window has pixels of several rows: the scale per row of a recipe is one per tensor there, that of a rule refused.
  RunConfig tokens = float_config(config);
  tokens.quant.prepare.recipe = "w8a8";
  check_quantized(file, with_observer(tokens, learner->model(), "min_max").quant.prepare, temp.file("observed"));
  for (const LayerChoice& c : choose_layers(learner->model(), config::prepare_spec(tokens.quant.prepare), kModelRoot)) {
    const bool conv = c.slot->kind() == Quantizable::Kind::kConv;
    CHECK(c.quant->input->granularity == (conv ? Granularity::tensor() : Granularity::token()));
  }
  const RunConfig rule = parse_config(kConvolutions, "convolutions.yaml",
                                      {"quant.rules=[{layers: \"*\", recipe: w8a8, activations: {dtype: int8, scheme: "
                                       "absmax, granularity: token}}]"});
  CHECK(contains(error_of([&] { check_quantized(file, rule.quant.prepare, temp.file("no")); }),
                 "got token. Set granularity: tensor"));
}

TEST_CASE("sensitivities of every kind of run are measured") {
  const KeepModes keep;
  TempDir temp;
  for (const std::string& name : shipped("mnist_mlp_")) {
    INFO(name);
    const std::string file = trained(temp, shortened(name));
    const RunConfig config = parse_config(read_checkpoint_header(file).config, file);
    const auto data = open_dataset(config, config.data.train);
    const std::vector<SampleBatch> samples = first_samples(*data, 20, 20, 1);
    const auto learner = load_floats(file, config, *data);
    learner->calibrate(tensors_of(samples));
    const std::vector<WeightChoice> choices{{"int8wo"}, {"int2wo"}};
    const Sensitivity s = measure_sensitivity(*learner, samples, choices, samples);
    CHECK(s.layers.size() == 4);
    for (const LayerSensitivity& layer : s.layers) CHECK(layer.effects[0].noise < layer.effects[1].noise);
  }
}

TEST_CASE("every kind of run is converted, in phases too, and the file is read") {
  const KeepModes keep;
  TempDir temp;
  struct Case {
    std::string name, phases;
  };
  std::vector<Case> cases;
  for (const std::string& name : shipped("mnist_mlp_")) cases.push_back({name, ""});
  cases.push_back({"mnist_mlp_int8_fake.yaml", "[{from: 0 steps}, {from: 1 steps, recipe: int4wo}]"});
  cases.push_back(
      {"mnist_mlp_int8_fake.yaml", "[{from: 0 steps}, {from: 1 steps, recipe: int4wo, first: int8wo, last: none}]"});
  cases.push_back({"mnist_mlp_int8_backward.yaml", "[{from: 0 steps}, {from: 1 steps, quantization: off}]"});
  for (const Case& c : cases) {
    INFO(c.name << ' ' << c.phases);
    std::vector<std::string> more;
    if (!c.phases.empty()) more.push_back("quant.phases=" + c.phases);
    const std::string file = trained(temp, shortened(c.name, more));
    const CheckpointHeader header = read_checkpoint_header(file);
    const RunConfig config = parse_config(header.config, file);
    const auto data = open_dataset(config, config.data.train);
    const auto learner = opened(file, *data);
    const RunConfig after = converted_config(config, *learner);
    learner->convert();
    save_converted(temp.file("model"), *learner, header, after);
    const auto again = opened(temp.file("model"), *data);
    CHECK(weights_of(*again) == weights_of(*learner));
    CHECK(evaluate(*again, *data, 20).loss == evaluate(*learner, *data, 20).loss);
  }
}

namespace {

// Quantizes the file with methods, on new learners.
std::vector<PtqLayer> fitted(const std::string& file, const std::string& recipe, const PtqSpec& methods,
                             const std::string& out = "") {
  const RunConfig config =
      float_config(parse_config(read_checkpoint_header(file).config, file, {}, {true, remembered_root(file)}));
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 40, 20, 1);
  const auto learner = load_floats(file, config, *data), reference = load_floats(file, config, *data);
  PrepareSpec spec;
  spec.all = find_recipe(recipe);
  std::vector<PtqLayer> layers = quantize_with_methods(*learner, *reference, spec, methods, samples, samples);
  if (out.empty()) return layers;
  RunConfig written = config;
  written.quant.prepare.recipe = recipe;
  save_converted(out, *learner, read_checkpoint_header(file), written);
  CHECK(evaluate(*opened(out, *data), *data, 20).loss == evaluate(*learner, *data, 20).loss);
  return layers;
}

}  // namespace

TEST_CASE("methods fit layers in order, and steps that raise the error are not kept") {
  const KeepModes keep;
  TempDir temp;
  for (const char* config : {"digits_linear_fp32.yaml", "digits_mlp_w1a1.yaml"}) {
    CAPTURE(config);
    const std::string file = trained(temp, shortened(config));
    const auto layers = fitted(file, "int2wo", {{"gptq", "clip", "refit"}}, temp.file("fitted"));
    int not_kept = 0;
    for (const PtqLayer& layer : layers) {
      double now = layer.before;
      for (const PtqStep& s : layer.steps) {
        if (!s.refused.empty()) continue;
        CHECK(s.before == now);
        CHECK(s.kept == (s.after < s.before));
        if (s.kept) now = s.after;
        not_kept += s.kept ? 0 : 1;
      }
      CHECK(layer.after == now);
      CHECK(layer.after < layer.before);
    }
    CHECK(not_kept > 0);
  }
}

TEST_CASE("methods fit convolutions, of groups of channels too, and renew norms") {
  const KeepModes keep;
  TempDir temp;
  const ImageFolder images;
  const std::string file = trained(temp, images.config(kDepthwiseNet, {"train.stop=4 steps"}));
  const auto layers = fitted(file, "int3wo", {{"gptq", "bias", "norms"}}, temp.file("fitted"));
  REQUIRE(layers.size() == 5);
  for (const PtqLayer& layer : layers) {
    CAPTURE(layer.layer, layer.skipped);
    CHECK(layer.skipped.empty());
    CHECK(layer.after < layer.before);
  }
}

TEST_CASE("methods that fit no layer, and unknown ones, are errors") {
  const KeepModes keep;
  TempDir temp;
  const std::string file = trained(temp, shortened("digits_linear_fp32.yaml"));
  CHECK(contains(error_of([&] { fitted(file, "nf4wo", {{"gptq"}}); }),
                 "method gptq fits no layer of this recipe: no layer is quantized to integers or signs"));
  CHECK(contains(error_of([&] { fitted(file, "int4wo", {{"clip"}}); }),
                 "method clip fits no layer of this recipe: 'layers.0': its codes have zero points or offsets"));
  CHECK(contains(error_of([&] { fitted(file, "int4wo", {{"gtpq"}}); }), "Did you mean 'gptq'?"));
}

TEST_CASE("sensitivities with methods are those of models with one layer quantized by them", "[bits]") {
  const KeepModes keep;
  TempDir temp;
  const PtqSpec methods{{"gptq", "refit"}};
  for (const RunConfig& trained_config :
       {shortened("mnist_mlp_fp32.yaml"), parse_config(kConvolutions, "convolutions.yaml")}) {
    const std::string file = trained(temp, trained_config);
    const RunConfig config =
        float_config(parse_config(read_checkpoint_header(file).config, file, {}, {true, remembered_root(file)}));
    const auto data = open_dataset(config, config.data.train);
    const std::vector<SampleBatch> samples = first_samples(*data, 40, 20, 1);
    const auto learner = load_floats(file, config, *data);
    const std::vector<float> before = learner->predict(samples.front().x).to_vector();
    const std::vector<WeightChoice> choices{{"int2wo"}, {"int3wo"}};
    const Sensitivity s = measure_sensitivity(*learner, samples, choices, {}, methods),
                      plain = measure_sensitivity(*learner, samples, choices, {});
    CHECK(learner->predict(samples.front().x).to_vector() == before);
    REQUIRE(s.layers.size() == 4);
    for (size_t i = 0; i < s.layers.size(); ++i) {
      CAPTURE(s.layers[i].layer);
      CHECK(s.layers[i].effects[0].noise != plain.layers[i].effects[0].noise);
      const auto one = load_floats(file, config, *data), reference = load_floats(file, config, *data);
      PrepareSpec spec;
      spec.rules = {{s.layers[i].layer, find_recipe("int2wo")}};
      quantize_with_methods(*one, *reference, spec, methods, samples, {});
      double loss = 0, weight = 0;
      for (const SampleBatch& b : samples) {
        const StepResult r = one->evaluate(b.x, b.target);
        loss += r.loss;
        weight += r.weight;
      }
      CHECK(s.loss + s.layers[i].effects[0].loss_change == Approx(loss / weight).epsilon(1e-6));
    }
    CHECK(contains(error_of([&] { measure_sensitivity(*learner, samples, choices, {}, {{"equalize"}}); }),
                   "method equalize changes the whole model, and here one layer is quantized at a time"));
    const std::vector<WeightChoice> codebook{{"nf4wo"}};
    CHECK(contains(error_of([&] { measure_sensitivity(*learner, samples, codebook, {}, {{"gptq"}}); }),
                   "method gptq fits no layer of this recipe"));
    CHECK(contains(error_of([&] { measure_sensitivity(*learner, samples, choices, {}, {{"gtpq"}}); }), "Did you mean"));
  }
}
