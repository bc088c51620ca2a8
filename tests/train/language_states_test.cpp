// One state of language models, whatever computed it: threads, instructions, kills within a run, blocks that run again
// in backward. tests/cuda/language_states_test.cpp adds the device.
#include "bitgrad/base/json.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/text_stream.h"
#include "bitgrad/train/checkpoint.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/language_networks.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::vector<std::pair<std::string, const char*>> kNetworks = {{"gpt", kSmallGptModel}, {"llama", kSmallLlama}};

}  // namespace

TEST_CASE("language models have one state for any threads and instructions, in every form") {
  const KeepModes keep;
  const LanguageFolder text;
  std::vector<std::string> all;
  for (const auto& [name, model] : kNetworks)
    for (const LanguageForm& form : language_forms()) {
      INFO(name << ", " << form.name);
      const auto hash = [&](int threads, const std::vector<std::string>& more = {}) {
        std::vector<std::string> keys = form.keys;
        keys.insert(keys.end(), more.begin(), more.end());
        RunConfig c = text.config(model, keys);
        c.device.threads = threads;
        return run_all(c).state_hash;
      };
      const std::string expected = hash(1);
      for (const int threads : {2, 4}) CHECK(hash(threads) == expected);
      for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
        set_isa_cap(level);
        INFO("cap " << static_cast<int>(level) << ": " << isa_names(cpu_isa()));
        CHECK(hash(2) == expected);
      }
      set_isa_cap(IsaLevel::kAmx);
      CHECK(hash(2, {"data.train.documents=joined", "data.train.end=-1"}) != expected);
      CHECK(std::count(all.begin(), all.end(), expected) == 0);
      all.push_back(expected);
    }
}

TEST_CASE("language models that are killed within a run resume to the state of the calm run") {
  const KeepModes keep;
  const LanguageFolder text;
  int runs = 0;
  for (const auto& [name, model] : kNetworks)
    for (const LanguageForm& form : language_forms()) {
      INFO(name << ", " << form.name);
      const RunConfig config = text.config(model, form.keys);
      const std::string calm = run_all(config).state_hash;
      const int64_t accumulate = config.batch.accumulate();
      for (const int64_t steps : {3, 5, 7}) {
        const std::string folder = create_run_folder(config, text.file("run" + std::to_string(runs++)));
        run_and_die(config, folder, steps * accumulate + accumulate / 2);
        CHECK(resume_run(folder).state_hash == calm);
      }
    }
}

TEST_CASE("blocks that run again in backward leave the state of the run that keeps everything, in every form") {
  const KeepModes keep;
  const LanguageFolder text;
  std::vector<LanguageForm> forms = language_forms();
  forms.push_back(
      {"learned steps",
       {"quant.rules=[{layers: 'layers.*.*.*', weights: {dtype: int4, scheme: lsq}, activations: {dtype: int8, "
        "scheme: lsq}}]"}});
  forms.push_back(
      {"observers",
       {"quant.rules=[{layers: 'layers.*.*.*', weights: {dtype: int8, scheme: symmetric}, activations: {dtype: "
        "int8, scheme: symmetric, observer: {name: moving_average}}}]"}});
  forms.push_back(
      {"one microbatch, stochastic codes",
       {"quant.weights={dtype: int4, scheme: symmetric, granularity: channel, rounding: stochastic, grad: bf16}",
        "batch.micro=4", "log.quantization=2 steps"}});
  forms.push_back({"phases, sums in a tree",
                   {"quant.recipe=8da4w", "batch.sum=tree",
                    "quant.phases=[{from: 0 steps, quantization: off}, {from: 3 steps}, {from: 6 steps, quantization: "
                    "frozen, observers: false}]"}});
  int runs = 0;
  for (const auto& [name, model] : kNetworks)
    for (const LanguageForm& form : forms) {
      INFO(name << ", " << form.name);
      std::vector<std::string> reports(2), hashes;
      for (const bool recompute : {false, true}) {
        const RunConfig config = text.config(model, form.keys, recompute);
        TrainHooks hooks;
        hooks.on_quant = [&](const QuantEvent& e) { reports[recompute ? 1 : 0] += to_json(e) + '\n'; };
        Trainer trainer(config);
        hashes.push_back(trainer.run("", hooks).state_hash);
        int64_t fused = 0;
        for (const Optimizer::FusedUpdate& u : trainer.learner().fused_updates()) fused += u.why_not.empty() ? 1 : 0;
        if (contains(form.name, "fused")) CHECK(fused >= 8);
      }
      CHECK(hashes[0] == hashes[1]);
      CHECK(reports[0] == reports[1]);
      const RunConfig config = text.config(model, form.keys, true);
      const std::string folder = create_run_folder(config, text.file("again" + std::to_string(runs++)));
      run_part(config, folder, 5);
      CHECK(resume_run(folder).state_hash == hashes[0]);
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

TEST_CASE("train lines tell multiplications a second, and what part of a stated peak they are") {
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

TEST_CASE("hooks are told of a module once, though its block runs again") {
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
