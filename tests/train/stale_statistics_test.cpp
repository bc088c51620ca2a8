// Statistics that belong to other weights: norms after quantization, learned steps without signal.
#include <cmath>
#include <map>

#include "bitgrad/tools/ptq.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/digits_nets.h"
#include "train/train_state.h"

namespace bitgrad::test {
namespace {

// Mean and unbiased variance of the columns of the input of each norm, all samples in one batch.
void check_statistics(Learner& learner, const Tensor& x) {
  std::map<std::string, Tensor> buffers;
  for (const Module::Buffer& b : learner.model().buffers()) buffers[b.path] = b.tensor;
  int64_t norms = 0;
  learner.state().on_forward = [&](const std::string& path, const Tensor& in, const Tensor&) {
    if (buffers.count(path + ".running_var") == 0) return;
    ++norms;
    const std::vector<double> v = in.elements();
    const int64_t rows = in.rows(), cols = in.cols();
    for (int64_t j = 0; j < cols; ++j) {
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < rows; ++i) mean += v[static_cast<size_t>(i * cols + j)] / static_cast<double>(rows);
      for (int64_t i = 0; i < rows; ++i) squares += std::pow(v[static_cast<size_t>(i * cols + j)] - mean, 2);
      const double var = squares / static_cast<double>(rows - 1);
      CHECK(static_cast<double>(buffers[path + ".running_mean"].as<float>()[j]) ==
            Approx(mean).epsilon(1e-5).margin(1e-5));
      CHECK(static_cast<double>(buffers[path + ".running_var"].as<float>()[j]) ==
            Approx(var).epsilon(1e-5).margin(1e-9));
    }
  };
  learner.predict(x);
  learner.state().on_forward = {};
  CHECK(norms == 2);
}

}  // namespace

TEST_CASE("quantization after training renews the statistics of norms, over all rows of the samples") {
  const KeepModes modes;
  const TempDir dir;
  const RunConfig config = digits();
  const std::string folder = create_run_folder(config, dir.path() + "/run");
  run_all(config, folder);
  const auto train = open_dataset(config, config.data.train), test = open_dataset(config, *config.data.test);
  const auto samples = first_samples(*train, 230, 100, 1), all = first_samples(*train, 230, 230, 1);
  const auto quantized = [&](const char* recipe, std::span<const SampleBatch> norms) {
    auto learner = load_floats(folder + "/last.safetensors", config, *test);
    PrepareSpec spec;
    spec.all = find_recipe(recipe);
    quantize_after_training(*learner, spec, samples, norms);
    return learner;
  };
  for (const char* recipe : {"ternary_wo", "w4a4"}) {
    INFO(recipe);
    const auto stale = quantized(recipe, {}), renewed = quantized(recipe, samples);
    check_statistics(*renewed, all[0].x);
    CHECK(evaluate(*renewed, *test, 100).loss < 0.7 * evaluate(*stale, *test, 100).loss);
  }
  const auto floats = load_floats(folder + "/last.safetensors", config, *test);
  CHECK(renew_norms(*floats, samples) == 2);
  check_statistics(*floats, all[0].x);
  const auto one = first_samples(*train, 1, 1, 1);
  CHECK(contains(error_of([&] { renew_norms(*floats, one); }), "need 2 values or more"));
}

TEST_CASE("learned steps leave their floor, with one warning") {
  const KeepModes modes;
  const LogLines log;
  Trainer trainer(digits({"quant.recipe=w2a2", "optim.lr=0.1", "train.stop=3 epochs"}));
  trainer.run("", {});
  for (Parameter* p : trainer.learner().model().parameters())
    if (p->low_bit()) {
      const Tensor& steps = p->learned()[0]->value();
      for (int64_t j = 0; j < steps.numel(); ++j) CHECK(steps.as<float>()[j] > 0x1p-20f);
    }
  int64_t told = 0;
  for (const std::string& warning : log.warnings)
    if (contains(warning, "layers.0.weight: ") && contains(warning, " of 48 learned steps of the weights")) ++told;
  CHECK(told == 1);
}

TEST_CASE("steps that are far too small are fitted again, of weights and of inputs, and healthy ones stay") {
  const KeepModes modes;
  for (const auto& [spec, part] : {std::pair{"{dtype: int4, scheme: lsq}", 0},
                                   {"{dtype: uint4, scheme: lsq_plus}", 0},
                                   {"{dtype: uint4, scheme: pact}", 0}}) {
    INFO(spec);
    for (const float bad : {0x1p-20f, 0x1p-21f}) {
      Trainer trainer(digits({"model.layers.2=quantize: {}", concat("quant.activations=", spec),
                              "quant.weights={dtype: int4, scheme: lsq, granularity: channel}"}));
      trainer.start();
      Learner& learner = trainer.learner();
      const auto data = open_dataset(digits(), digits().data.train);
      const auto batches = first_samples(*data, 50, 50, 1);
      const auto& [x, target] = batches[0];
      learner.microbatch(x, target);
      std::vector<Parameter*> steps;
      for (Parameter* p : learner.model().parameters())
        if (p->path().ends_with(".step") || p->path().ends_with(".clip")) steps.push_back(p);
      REQUIRE(steps.size() == 4);
      std::vector<float> healthy;
      for (Parameter* p : steps) {
        healthy.push_back(p->value().as<float>()[0]);
        p->value().as<float>()[0] = bad;
      }
      detail::set_counters(learner.train_state(), 5, 5, 0);
      learner.microbatch(x, target);
      for (size_t i = 0; i < steps.size(); ++i) {
        INFO(steps[i]->path() << ' ' << steps[i]->value().as<float>()[0] << " was " << healthy[i]);
        CHECK(steps[i]->value().as<float>()[0] > 0.2f * healthy[i]);
      }
    }
  }
}

}  // namespace bitgrad::test
