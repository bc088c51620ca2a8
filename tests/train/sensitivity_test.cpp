// Sensitivity of layers against hand computation, and post-training quantization.
#include "bitgrad/base/json.h"
#include "bitgrad/tools/budget.h"

#include <cmath>

#include "bitgrad/data/loader.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_learner.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kMixed = R"yaml(version: 1
run: {name: mixed, seed: 5}
data:
  train: {format: digits, size: 200}
  test: {format: digits, size: 60}
model:
  layers:
    - linear: {out: 12}
    - batch_norm: {}
    - relu: {}
    - linear: {out: 10, weights: {dtype: int4, scheme: symmetric, granularity: channel}}
batch: {global: 20, micro: 20}
optim: {name: adam, lr: 0.01}
train: {stop: 3 epochs}
checkpoint: {every: 3 epochs}
)yaml";

// 5 -> 4 -> relu -> 3, in fp32.
std::unique_ptr<Learner> float_learner() {
  OptimizerSpec adam;
  adam.name = "adam";
  const auto model =
      make_sequential({linear_spec(4, dtypes::fp32, ""), plain_spec("relu"), linear_spec(3, dtypes::fp32, "")}, 5);
  return std::make_unique<Learner>(
      model, find_loss("softmax_cross_entropy"), adam, RequantPolicy{1, 1}, [](int64_t) { return 0.05f; }, 3);
}

Tensor classes(const std::vector<double>& labels) {
  return Tensor::from_elements({std::ssize(labels)}, dtypes::int32, labels);
}

std::vector<SampleBatch> two_batches() {
  return {{random_tensor({6, 5}, dtypes::fp32, 1), classes({0, 1, 2, 0, 1, 2})},
          {random_tensor({3, 5}, dtypes::fp32, 2), classes({2, 1, 0})}};
}

// Mean loss in double of the float model with weights w0 [4,5] and w2 [3,4].
double reference_loss(const std::vector<double>& w0, const std::vector<double>& b0, const std::vector<double>& w2,
                      const std::vector<double>& b2, const std::vector<SampleBatch>& samples) {
  double sum = 0;
  int64_t n = 0;
  for (const SampleBatch& s : samples)
    for (int64_t r = 0; r < s.x.rows(); ++r, ++n) {
      double h[4], y[3], total = 0;
      for (size_t o = 0; o < 4; ++o) {
        h[o] = b0[o];
        for (size_t i = 0; i < 5; ++i)
          h[o] += w0[o * 5 + i] * static_cast<double>(s.x.as<float>()[r * 5 + static_cast<int64_t>(i)]);
        h[o] = std::max(h[o], 0.0);
      }
      for (size_t o = 0; o < 3; ++o) {
        y[o] = b2[o];
        for (size_t i = 0; i < 4; ++i) y[o] += w2[o * 4 + i] * h[i];
        total += std::exp(y[o]);
      }
      sum += std::log(total) - y[s.target.as<int32_t>()[r]];
    }
  return sum / static_cast<double>(n);
}

std::vector<double> numbers(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.numel(); ++i) out.push_back(static_cast<double>(t.as<float>()[i]));
  return out;
}

// Symmetric, one scale a row (groups of 32 hold a whole row here): s = max abs / ((2^bits - 1) / 2), codes to nearest
// even. In fp32 as docs/numerics.md has it: the largest number of a row lies on a tie.
std::vector<double> symmetric(const std::vector<double>& w, size_t cols, int bits) {
  std::vector<double> q(w.size());
  const double half = std::ldexp(1.0, bits - 1);
  for (size_t r = 0; r < w.size() / cols; ++r) {
    float upper = 0;
    for (size_t i = 0; i < cols; ++i) upper = std::max(upper, std::abs(static_cast<float>(w[r * cols + i])));
    const float s = upper / static_cast<float>((half * 2 - 1) / 2), inverse = 1.0f / s;
    for (size_t i = 0; i < cols; ++i) {
      const float code = std::nearbyint(static_cast<float>(w[r * cols + i]) * inverse);
      q[r * cols + i] = static_cast<double>(s) * std::min(std::max(static_cast<double>(code), -half), half - 1);
    }
  }
  return q;
}

double relative_noise(const std::vector<double>& w, const std::vector<double>& q) {
  double noise = 0, signal = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    noise += (w[i] - q[i]) * (w[i] - q[i]);
    signal += w[i] * w[i];
  }
  return noise / signal;
}

}  // namespace

TEST_CASE("sensitivities are what quantizing one layer by hand gives") {
  const auto learner = float_learner();
  const std::vector<SampleBatch> samples = two_batches();
  const std::vector<Parameter*> p = learner->model().parameters();
  REQUIRE(p.size() == 4);
  const std::vector<double> w0 = numbers(p[0]->value()), b0 = numbers(p[1]->value()), w2 = numbers(p[2]->value()),
                            b2 = numbers(p[3]->value());
  const std::vector<WeightChoice> choices{{"int4wo_symmetric"}, {"int2wo"}, {"int3wo", true}};
  const Sensitivity s = measure_sensitivity(*learner, samples, choices, samples);
  const double base = reference_loss(w0, b0, w2, b2, samples);
  CHECK(s.samples == 9);
  CHECK(s.loss == Approx(base).epsilon(1e-5));
  REQUIRE(s.layers.size() == 2);
  CHECK(s.layers[0].layer == "layers.0");
  CHECK(s.layers[0].bytes == 80);
  CHECK(s.layers[1].layer == "layers.2");
  const int bits[] = {4, 2, 3};
  for (size_t r = 0; r < 3; ++r) {
    const std::vector<double> q0 = symmetric(w0, 5, bits[r]), q2 = symmetric(w2, 4, bits[r]);
    const LayerEffect &e0 = s.layers[0].effects[r], &e2 = s.layers[1].effects[r];
    INFO(choices[r].recipe);
    CHECK(e0.recipe == choices[r].recipe);
    CHECK(e0.group == (r == 2 ? std::optional<int64_t>(5) : std::nullopt));
    CHECK(e0.bits == bits[r]);
    CHECK(e0.bytes == 4 * ((5 * bits[r] + 7) / 8) + 4 * 4);
    CHECK(e2.bytes == 3 * ((4 * bits[r] + 7) / 8) + 3 * 4);
    CHECK(e0.noise == Approx(relative_noise(w0, q0)).epsilon(1e-4));
    CHECK(e2.noise == Approx(relative_noise(w2, q2)).epsilon(1e-4));
    CHECK(e0.sqnr_db() == Approx(-10 * std::log10(e0.noise)));
    CHECK(e0.loss_change == Approx(reference_loss(q0, b0, w2, b2, samples) - base).margin(1e-5));
    CHECK(e2.loss_change == Approx(reference_loss(w0, b0, q2, b2, samples) - base).margin(1e-5));
  }
}

TEST_CASE("sensitivities leave a model of float and low-bit weights as it was, bit for bit") {
  const KeepModes keep;
  const RunConfig config = small_config({}, kMixed);
  TempDir temp;
  Trainer trainer(config);
  trainer.run("");
  Learner& learner = trainer.learner();
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 50, 20, 5);
  const std::string before = state_hash(learner, trainer.counters());
  const Evaluation test = trainer.evaluate_held_out();
  const std::vector<WeightChoice> choices{{"int8wo"}, {"int2wo"}, {"binary_wo"}, {"nf4wo"}, {"w2a2"}};
  const Sensitivity s = measure_sensitivity(learner, samples, choices, samples);
  CHECK(s.layers[1].effects[2].bytes == 10 * 2 + 10 * 4);
  save_checkpoint(temp.file("after"), learner, trainer.counters(), to_yaml(config));
  const auto again = build_learner(config, *data);
  load_checkpoint(temp.file("after"), *again);
  CHECK(state_hash(*again, trainer.counters()) == before);
  const Evaluation after = evaluate(learner, *open_dataset(config, *config.data.test), config.train.eval.batch);
  CHECK(after.loss == test.loss);
  CHECK(after.accuracy == test.accuracy);

  const Sensitivity twice = measure_sensitivity(learner, samples, choices, samples);
  for (size_t i = 0; i < s.layers.size(); ++i)
    for (size_t r = 0; r < choices.size(); ++r) {
      CHECK(twice.layers[i].effects[r].loss_change == s.layers[i].effects[r].loss_change);
      CHECK(twice.layers[i].effects[r].noise == s.layers[i].effects[r].noise);
    }
  const Json j = Json::parse(sensitivity_json(s));
  CHECK(j.at("layers").size() == 2);
  CHECK(j.at("layers")[0].at("recipes")[1].at("recipe") == "int2wo");
  CHECK(j.at("layers")[0].at("recipes")[1].at("loss_change") == s.layers[0].effects[1].loss_change);
}

TEST_CASE("each choice for a frozen layer starts from its values, for any choice tried before") {
  const KeepModes keep;
  const RunConfig config = small_config({"model.layers.0.linear.weights.frozen=true"}, kMixed);
  Trainer trainer(config);
  trainer.run("");
  const auto data = open_dataset(config, config.data.train);
  const std::vector<SampleBatch> samples = first_samples(*data, 50, 20, 5);
  const std::vector<WeightChoice> alone{{"int8wo"}}, after{{"binary_wo"}, {"int8wo"}};
  const std::vector<double> before = numbers(trainer.learner().model().parameters()[0]->value());
  const LayerEffect a = measure_sensitivity(trainer.learner(), samples, alone, samples).layers[0].effects[0],
                    b = measure_sensitivity(trainer.learner(), samples, after, samples).layers[0].effects[1];
  CHECK(a.noise == b.noise);
  CHECK(a.loss_change == b.loss_change);
  CHECK(numbers(trainer.learner().model().parameters()[0]->value()) == before);
}

TEST_CASE("sensitivities refuse what they cannot measure") {
  const auto learner = float_learner();
  const std::vector<SampleBatch> samples = two_batches();
  const std::vector<WeightChoice> none{{"none"}}, unknown{{"int9wo"}}, good{{"int8wo"}}, rows{{"int8wo", true}};
  CHECK(
      contains(error_of([&] { measure_sensitivity(*learner, samples, none, samples); }), "leaves the weights in fp32"));
  CHECK(
      contains(error_of([&] { measure_sensitivity(*learner, samples, unknown, samples); }), "unknown recipe 'int9wo'"));
  CHECK(contains(error_of([&] { measure_sensitivity(*learner, samples, rows, samples); }), "has no groups"));
  CHECK(contains(error_of([&] { measure_sensitivity(*learner, {}, good, {}); }), "no samples"));
  CHECK(contains(error_of([&] { uniform_recipe(7); }), "8, 6, 5, 4, 3, 2, 1"));
  CHECK(uniform_recipe(1) == "binary_wo");
  learner->convert();
  CHECK(contains(error_of([&] { measure_sensitivity(*learner, samples, good, samples); }), "converted"));
}

TEST_CASE("the first samples are those of the first epoch's order") {
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = 50;
  const auto data = make_dataset(spec);
  const std::vector<SampleBatch> batches = first_samples(*data, 23, 10, 7);
  REQUIRE(batches.size() == 3);
  CHECK(batches[2].x.rows() == 3);
  std::vector<int64_t> order(50);
  shuffled_order(7, 0, 50, order.data());
  std::vector<float> x(static_cast<size_t>(data->features()));
  for (int64_t i = 0; i < 23; ++i) {
    int32_t label = 0;
    data->sample(order[static_cast<size_t>(i)], x.data(), &label);
    const SampleBatch& b = batches[static_cast<size_t>(i / 10)];
    CHECK(b.target.as<int32_t>()[i % 10] == label);
    CHECK(std::equal(x.begin(), x.end(), b.x.as<float>() + (i % 10) * data->features()));
  }
  CHECK(first_samples(*data, 1000, 64, 7).front().target.numel() == 50);
  CHECK(contains(error_of([&] { first_samples(*data, 0, 10, 7); }), "at least 1"));
}

TEST_CASE("quantizing after training holds the trained numbers as the rules say, with ranges found on the samples") {
  const KeepModes keep;
  const RunConfig config = small_config({}, kMixed);
  TempDir temp;
  run_all(config, create_run_folder(config, temp.file("run")));
  const auto test = open_dataset(config, *config.data.test), train = open_dataset(config, config.data.train);
  const std::string file = temp.file("run") + "/last.safetensors";
  const std::vector<SampleBatch> samples = first_samples(*train, 100, 20, 5);
  const auto load = [&] { return load_floats(file, config, *test); };
  const Evaluation floats = evaluate(*load(), *test, 20);

  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  spec.all->input->granularity = Granularity::tensor();
  spec.all->observer = ObserverSpec{"min_max"};
  const auto learner = load();
  quantize_after_training(*learner, spec, samples, samples);
  const Evaluation e = evaluate(*learner, *test, 20);
  CHECK(e.loss == Approx(floats.loss).epsilon(0.05));
  // Images are in [0, 1]: the range that an observer has seen, not that of a batch.
  for (const Module::Buffer& b : learner->model().buffers())
    if (b.path == "layers.0.input.observer.high") CHECK(b.tensor.item() == 1.0f);
  for (const Quantizable* slot : learner->model().quantizables()) CHECK(slot->converted());
  CHECK(contains(error_of([&] { learner->microbatch(samples[0].x, samples[0].target); }), "convert"));

  spec.rules.push_back({"nothing.*", find_recipe("int8wo")});
  CHECK(contains(error_of([&] { quantize_after_training(*load(), spec, samples, samples); }), "matches no layer"));
  CHECK(contains(error_of([&] { quantize_after_training(*load(), {}, {}, {}); }), "samples"));
}

TEST_CASE("a converted run has the configuration of the phase that it was in") {
  const KeepModes keep;
  const auto run_at = [](const std::string& phases, int64_t phase) {
    const RunConfig config = small_config({"quant.phases=" + phases}, kMixed);
    const auto data = open_dataset(config, config.data.train);
    const auto learner = build_learner(config, *data);
    learner->enter_phase(phase);
    const RunConfig after = converted_config(config, *learner);
    CHECK(parse_config(to_yaml(after), "again") == after);
    std::vector<std::string> weights;
    const auto again = build_evaluator(after, *data);
    learner->convert();
    again->convert();
    const std::vector<LayerSummary> expected = summarize(learner->model()), got = summarize(again->model());
    for (size_t i = 0; i < got.size(); ++i) {
      const std::string& held = expected[i].weight;
      CHECK(got[i].weight == held.substr(0, held.find(" (frozen)")));
      CHECK(got[i].input == expected[i].input);
      weights.push_back(got[i].weight);
    }
    return weights;
  };
  const std::string phases =
      "[{from: 0 steps, recipe: int4wo, last: int8wo}, {from: 2 steps, quantization: off}, {from: 4 steps, rules: "
      "[{layers: layers.0, recipe: int2wo}]}, {from: 6 steps, quantization: frozen}]";
  CHECK(run_at(phases, 0) == std::vector<std::string>{"uint4 minmax_offset group(32)", "int8 absmax channel(0)"});
  CHECK(run_at(phases, 1) == std::vector<std::string>{"fp32", "fp32"});
  CHECK(run_at(phases, 2) == std::vector<std::string>{"int2 symmetric group(32)", "int8 absmax channel(0)"});
  CHECK(run_at(phases, 3) == std::vector<std::string>{"int2 symmetric group(32)", "int8 absmax channel(0)"});
}
