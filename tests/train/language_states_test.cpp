// Language models: documents apart, and blocks that run again in backward.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/language_networks.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("weights in blocks that run again are updated inside backward") {
  const KeepModes keep;
  const LanguageFolder text;
  const auto fused = std::find_if(language_forms().begin(), language_forms().end(),
                                  [](const LanguageForm& form) { return contains(form.name, "fused"); });
  for (const char* model : {kSmallGptModel, kSmallLlama}) {
    Trainer trainer(text.config(model, fused->keys, /*recompute=*/true));
    trainer.run("");
    const std::vector<Optimizer::FusedUpdate>& updates = trainer.learner().fused_updates();
    CHECK(std::count_if(updates.begin(), updates.end(), [](const auto& u) { return u.why_not.empty(); }) >= 8);
  }
}

TEST_CASE("another document changes nothing of a document, in training and evaluation, unless they are joined") {
  const KeepModes keep;
  const LanguageFolder text;
  for (const bool apart : {true, false}) {
    std::vector<std::string> keys;
    for (const char* set : {"train", "test"})
      if (!apart) keys.insert(keys.end(), {concat("data.", set, ".documents=joined"), concat("data.", set, ".end=-1")});
    Trainer trainer(text.config(kSmallLlama, keys));
    Learner& learner = trainer.learner();
    CHECK(learner.document_end() == (apart ? 2 : -1));
    const std::vector<double> ids{4, 5, 6, 7, 2, 8, 9, 10, 11, 2, 5, 4}, other{9, 1, 7, 3, 2, 8, 9, 10, 11, 2, 5, 4};
    const auto outputs = [&](const std::vector<double>& of) {
      const Tensor y = learner.predict(Tensor::from_elements({1, 12}, dtypes::int32, of));
      return std::vector<float>(y.as<float>(), y.as<float>() + y.numel());
    };
    const std::vector<float> a = outputs(ids), b = outputs(other);
    const bool same = std::equal(a.begin() + 5 * 26, a.end(), b.begin() + 5 * 26);
    CHECK(same == apart);
    CHECK_FALSE(std::equal(a.begin(), a.begin() + 5 * 26, b.begin()));
    // Targets of the second document alone: their loss, and the step that it makes.
    std::vector<double> classes(12, kIgnoredClass);
    for (size_t t = 5; t < 9; ++t) classes[t] = ids[t + 1];
    const Tensor target = Tensor::from_elements({1, 12}, dtypes::int32, classes);
    std::vector<double> losses;
    std::vector<std::string> states;
    for (const auto& of : {ids, other}) {
      Trainer fresh(text.config(kSmallLlama, keys));
      const Tensor x = Tensor::from_elements({1, 12}, dtypes::int32, of);
      losses.push_back(fresh.learner().evaluate(x, target).loss);
      for (int i = 0; i < 2; ++i) losses.push_back(fresh.learner().microbatch(x, target).loss);
      std::string& state = states.emplace_back();
      for (Parameter* p : fresh.learner().model().parameters())
        if (!contains(p->path(), "layers.0.")) state += concat(p->value().on_host().elements()[0], ' ');
    }
    CHECK((losses[0] == losses[3]) == apart);
    CHECK((losses[2] == losses[5]) == apart);
    CHECK((states[0] == states[1]) == apart);
  }
}

TEST_CASE("running statistics of a norm move once in a block that runs again") {
  const KeepModes keep;
  std::vector<std::string> hashes;
  for (const char* recompute : {"false", "true"}) {
    const std::string block = concat("sequence: {recompute: ", recompute,
                                     ", layers: [{linear: {out: 12}}, {batch_norm: {}}, {quantize: {dtype: bint1, "
                                     "scheme: binary}}, {linear: {out: 12}}, "
                                     "{tensor_norm: {}}, {relu: {}}]}");
    hashes.push_back(
        run_all(parse_config("version: 1\nrun: {seed: 3}\ndata:\n  train: {format: digits, size: 50}\n  test: "
                             "{format: digits, size: 20}\nmodel:\n  layers:\n    - " +
                                 block +
                                 "\n    - linear: {out: 10}\nbatch: {global: 10}\noptim: {name: adam, lr: "
                                 "0.01}\ntrain: {stop: 6 steps}\n",
                             "norms.yaml"))
            .state_hash);
  }
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("blocks that run again keep less: the account of saved bytes falls") {
  const KeepModes keep;
  const LanguageFolder text;
  std::vector<int64_t> peaks;
  for (const bool recompute : {false, true}) {
    std::string model = kSmallGptModel;
    model.replace(model.find("times: 2"), 8, "times: 8");
    Trainer trainer(text.config(model, {"train.stop=2 steps"}, recompute));
    reset_memory_peaks();
    trainer.run("");
    peaks.push_back(memory_peak_by_kind()[MemoryKind::kSaved]);
  }
  CHECK(peaks[1] * 3 < peaks[0]);
}

TEST_CASE("train lines report multiplications per second, and their part of a stated peak") {
  const KeepModes keep;
  const LanguageFolder text;
  const RunConfig config = text.config(kSmallGptModel, {"log.peak=50", "log.every=4 steps"}, true);
  const std::string folder = create_run_folder(config, text.file("peak"));
  Trainer trainer(config);
  trainer.run(folder);
  // Linear layers and the head, q k and p v of the keys seen, of one window of 12 positions; three times for a step.
  const double linear = 12.0 * (2 * (96 * 32 + 32 * 32 + 2 * 64 * 32) + 26 * 32), attention = 2 * 32 * 12 * 13;
  TextReader lines(text_of(folder + "/metrics.jsonl"));
  int told = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json e = Json::parse(line);
    if (e.at("event") != "train") continue;
    ++told;
    const double rate = e.at("samples_per_s").get<double>() * 3e-9 * (linear + attention);
    CHECK(e.at("gmacs_per_s").get<double>() == Approx(rate).epsilon(1e-5));
    CHECK(e.at("mfu").get<double>() == Approx(2 * rate).epsilon(1e-5));
  }
  CHECK(told == 2);
}

TEST_CASE("hooks are called once per module, though its block runs again") {
  const KeepModes keep;
  const LanguageFolder text;
  std::vector<std::string> told(2);
  for (const bool recompute : {false, true}) {
    Trainer trainer(text.config(kSmallGptModel, {}, recompute));
    const auto data = open_dataset(trainer.config(), trainer.config().data.train);
    const Tensor x = Tensor::empty({1, 12}, dtypes::int32), target = Tensor::empty({1, 12}, dtypes::int32);
    data->example(3, x.as<int32_t>(), target.as<int32_t>());
    trainer.learner().state().on_forward = [&](const std::string& path, const Tensor&, const Tensor& out) {
      told[recompute ? 1 : 0] += concat(path, ' ', out.shape(), '\n');
    };
    trainer.learner().microbatch(x, target);
  }
  CHECK(contains(told[0], "layers.3.1.0.1.body.4 [1,12,32]"));
  CHECK(told[1] == told[0]);
}
