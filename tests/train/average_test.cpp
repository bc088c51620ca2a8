// train.ema: a moving average of the weights, evaluated and saved beside them; checkpoint.keep.
#include <cmath>
#include <filesystem>
#include <sstream>

#include "bitgrad/io/safetensors.h"
#include "support/log_lines.h"
#include "train/averages.h"
#include "train/promise_nets.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kDecay = "train.ema=0.75";

std::vector<float> floats(const std::string& file, const std::string& name) {
  const SafetensorsFile f = SafetensorsFile::read(file);
  const auto* const x = reinterpret_cast<const float*>(f.data(name));
  return {x, x + f.entry(name).bytes / 4};
}

Json last_evaluation(const std::string& folder) {
  std::istringstream in(text_of(folder + "/metrics.jsonl"));
  Json found;
  for (std::string line; std::getline(in, line);)
    if (Json j = Json::parse(line); j.at("event") == "eval") found = j;
  return found;
}

}  // namespace

TEST_CASE("the average begins at the first values and moves by its decay after each step") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const std::vector<std::string> names{"layers.0.weight", "layers.4.bias", "layers.1.gamma"};
  const auto steps = [&](int64_t n, const std::string& learned) {
    std::vector<std::string> keys{kDecay, concat("train.stop=", n, " steps"), "train.eval.every=1 steps"};
    if (!learned.empty()) keys.push_back(learned);
    const RunConfig config = folder.config("table", keys);
    const std::string path = create_run_folder(config, temp.file(concat(n, learned.empty() ? "" : "q")));
    run_all(config, path);
    return path + "/last.safetensors";
  };
  for (const std::string quant : {"", "quant.weights={dtype: int4, scheme: symmetric, granularity: channel}",
                                  "quant.weights={dtype: int4, scheme: lsq, granularity: channel}"}) {
    INFO(quant);
    Trainer first(folder.config("table", quant.empty() ? std::vector<std::string>{} : std::vector<std::string>{quant}));
    std::map<std::string, std::vector<double>> average;
    for (const Parameter* p : first.learner().model().parameters()) average[p->path()] = p->master().elements();
    for (int64_t n = 1; n <= 3; ++n) {
      const std::string file = steps(n, quant);
      for (const std::string& name : names) {
        INFO(name << " after " << n);
        const std::vector<float> now = floats(file, name + ".master"), a = floats(file, name + ".average");
        std::vector<double>& right = average[name];
        REQUIRE(a.size() == right.size());
        for (size_t i = 0; i < a.size(); ++i) {
          right[i] = 0.75 * right[i] + 0.25 * static_cast<double>(now[i]);
          CHECK(std::fabs(static_cast<double>(a[i]) - right[i]) < 1e-6);
        }
      }
      file_system().remove(file);
      std::filesystem::remove_all(file.substr(0, file.rfind('/')));
    }
  }
}

TEST_CASE("an average resumes bit for bit, and the run beside it is that without one") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const std::vector<std::vector<std::string>> nets{
      {},
      {"quant.weights={dtype: int4, scheme: lsq}", "quant.requantize_every=2"},
      {"quant.rules=[{layers: '*', weights: {dtype: int8, master: bf16}, activations: {dtype: int8, scheme: affine, "
       "observer: {name: moving_average}}}]"},
      {"quant.recipe=int8wo", "quant.phases=[{from: 0 steps, quantization: off}, {from: 3 steps}]"}};
  int64_t count = 0;
  for (const std::vector<std::string>& net : nets) {
    INFO(count);
    std::vector<std::string> with = net;
    with.push_back(kDecay);
    const RunConfig config = folder.config("table", with);
    const std::string uninterrupted = create_run_folder(config, temp.file(concat("uninterrupted", count)));
    const std::string hash = run_all(config, uninterrupted).state_hash;
    const std::string plain = create_run_folder(folder.config("table", net), temp.file(concat("plain", count)));
    run_all(folder.config("table", net), plain);
    const SafetensorsFile alone = SafetensorsFile::read(plain + "/last.safetensors"),
                          beside = SafetensorsFile::read(uninterrupted + "/last.safetensors");
    for (const SafetensorsEntry& e : alone.entries()) {
      INFO(e.name);
      REQUIRE(beside.contains(e.name));
      CHECK(std::equal(alone.data(e.name), alone.data(e.name) + e.bytes, beside.data(e.name)));
    }
    for (int64_t stop = 1; stop < 6; ++stop) {
      INFO("stopped at " << stop);
      const std::string part = create_run_folder(config, temp.file(concat("part", count, '_', stop)));
      run_part(config, part, stop);
      CHECK(resume_run(part).state_hash == hash);
      for (const std::string file : {"/last.safetensors", "/average.safetensors"}) {
        const SafetensorsFile a = SafetensorsFile::read(uninterrupted + file), b = SafetensorsFile::read(part + file);
        for (const SafetensorsEntry& e : a.entries())
          CHECK(std::equal(a.data(e.name), a.data(e.name) + e.bytes, b.data(e.name)));
      }
    }
    ++count;
  }
}

TEST_CASE("the average is evaluated beside the model, and average.safetensors is what was evaluated") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  for (const std::string quant :
       {"quant.recipe=none", "quant.recipe=int8wo", "quant.weights={dtype: ternary, scheme: ternary}"}) {
    INFO(quant);
    const RunConfig config = folder.config("table", {kDecay, quant, "optim.lr=0.2"});
    const std::string path = create_run_folder(config, temp.file(std::to_string(std::hash<std::string>{}(quant))));
    run_all(config, path);
    const Json told = last_evaluation(path);
    Trainer open(config);
    const auto measured = [&](const std::string& file) {
      return evaluate(*load_evaluator(config, *open_dataset(config, *config.data.test), path + file),
                      *open_dataset(config, *config.data.test), config.train.eval.batch);
    };
    const Evaluation average = measured("/average.safetensors"), last = measured("/last.safetensors");
    CHECK(std::fabs(told.at("average").at("loss").get<double>() - average.loss) < 1e-4 * average.loss);
    CHECK(std::fabs(told.at("loss").get<double>() - last.loss) < 1e-4 * last.loss);
    CHECK(average.loss != last.loss);
    // Its codes are those of the averaged masters.
    const auto model = load_evaluator(config, *open_dataset(config, *config.data.test), path + "/average.safetensors");
    for (const Parameter* p : model->model().parameters()) {
      if (!p->low_bit()) continue;
      const std::vector<float> masters = floats(path + "/last.safetensors", p->path() + ".average");
      const Tensor x =
          Tensor::from_elements(p->value().shape(), dtypes::fp32, std::vector<double>(masters.begin(), masters.end()));
      const Tensor expected = quantize_dynamic(*p->spec().quant, x);
      INFO(p->path());
      CHECK(p->value().elements() == expected.elements());
      CHECK(p->value().quant()->scale->elements() == expected.quant()->scale->elements());
    }
  }
}

TEST_CASE("checkpoint.keep leaves the last checkpoints, also over a resume") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const RunConfig config = folder.config("table", {"checkpoint={every: 1 steps, keep: 2}"});
  const std::string path = create_run_folder(config, temp.file("run"));
  const auto kept = [&] {
    std::vector<std::string> names = file_system().list(path);
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("step_"); });
    std::sort(names.begin(), names.end());
    return names;
  };
  using Names = std::vector<std::string>;
  run_part(config, path, 3);
  CHECK(kept() == Names{"step_2.safetensors", "step_3.safetensors"});
  CHECK(resume_run(path).state_hash == run_all(config).state_hash);
  CHECK(kept() == Names{"step_5.safetensors", "step_6.safetensors"});
  CHECK(read_checkpoint_header(path + "/step_5.safetensors").step == 5);
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
}

TEST_CASE("a checkpoint that was just kept stays, where those of later steps are of a run that was given up") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const RunConfig config = folder.config("table", {"checkpoint={every: 1 steps, keep: 2}"});
  const std::string path = create_run_folder(config, temp.file("run")), last = path + "/last.safetensors";
  run_part(config, path, 2);
  std::filesystem::copy_file(last, temp.file("early"));
  const auto one_step = [&] {
    Trainer trainer(config);
    trainer.resume(last);
    TrainHooks hooks;
    hooks.stop_requested = [] { return StopRequest::kInterrupt; };
    CHECK(trainer.run(path, hooks).stopped != StopRequest::kNone);
  };
  for (int64_t step = 3; step <= 5; ++step) one_step();
  std::filesystem::rename(temp.file("early"), last);
  one_step();
  std::vector<std::string> names = file_system().list(path);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("step_"); });
  CHECK(names == std::vector<std::string>{"step_3.safetensors", "step_5.safetensors"});
}

TEST_CASE("the average of a learned step of inputs begins with the step of the first batch") {
  const KeepModes keep;
  const PromiseFolder folder;
  const std::string quant =
      "quant.rules=[{layers: '*', weights: {dtype: int8}, activations: {dtype: int8, scheme: lsq_plus}}]";
  const auto found = [&](const std::string& stop, bool average) {
    Trainer trainer(folder.config("table", {"train.ema=0.999", quant, "train.stop=" + stop}));
    trainer.run("");
    std::vector<double> steps;
    for (const Parameter* p : trainer.learner().model().parameters())
      if (p->path().ends_with(".input.step"))
        steps.push_back(
            (average ? trainer.learner().train_state().average->state().at(p->path() + ".average") : p->value())
                .elements()[0]);
    return steps;
  };
  const std::vector<double> first = found("1 steps", false), average = found("6 steps", true);
  REQUIRE((first.size() == 3 && average.size() == 3));
  for (size_t i = 0; i < first.size(); ++i) CHECK(std::fabs(average[i] - first[i]) < 0.01 * first[i]);
}

TEST_CASE("training cannot continue from an average, and its tensors are not loaded by another run") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const RunConfig config = folder.config("table", {kDecay});
  const std::string path = create_run_folder(config, temp.file("run")), average = path + "/average.safetensors";
  run_all(config, path);
  const std::string error = error_of([&] { Trainer(config).resume(average); });
  CHECK(contains(error, average + " holds the average of a run's weights (train.ema): its moments belong to others. "));
  CHECK(error_code_of([&] { Trainer(config).resume(average); }) == 3);
  const LogLines log;
  for (const char* file : {"/average.safetensors", "/last.safetensors"}) {
    Trainer next(folder.config("table", {"model.init_from=" + path + file}));
    next.start();
    const SafetensorsFile from = SafetensorsFile::read(path + file);
    for (const Parameter* p : next.learner().model().parameters()) {
      const auto* const x = reinterpret_cast<const float*>(from.data(p->path() + ".master"));
      CHECK(std::equal(x, x + p->value().numel(), p->value().as<float>()));
    }
  }
  CHECK(log.warnings.empty());
}

TEST_CASE("a run that kept no average begins one where it goes on") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const RunConfig plain = folder.config("table", {});
  const std::string path = create_run_folder(plain, temp.file("run"));
  run_part(plain, path, 3);
  const LogLines log;
  Trainer trainer(folder.config("table", {kDecay}));
  trainer.resume(path + "/last.safetensors");
  CHECK(std::count(log.warnings.begin(), log.warnings.end(),
                   path + "/last.safetensors holds no average (train.ema): it begins with the values of step 3") == 1);
  for (const Parameter* p : trainer.learner().model().parameters())
    CHECK(trainer.learner().train_state().average->state().at(p->path() + ".average").elements() ==
          p->master().elements());
}

TEST_CASE("weights without masters are not averaged, and that is reported") {
  const KeepModes keep;
  const PromiseFolder folder;
  const LogLines log;
  Trainer(folder.config("table", {kDecay,
                                  "model.layers.4.linear.weights={dtype: int8, scheme: absmax, granularity: channel, "
                                  "master: none}"}));
  REQUIRE(log.warnings.size() == 1);
  CHECK(log.warnings[0] ==
        "train.ema averages masters, and these have none: layers.4.weight. The average has the codes of the run there");
}
