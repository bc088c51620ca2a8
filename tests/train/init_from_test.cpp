// First numbers from another run.
#include <algorithm>
#include <filesystem>
#include <set>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/run/adapters.h"
#include "bitgrad/task/loss.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/phase_runs.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::map<std::string, std::vector<double>> numbers_of(Learner& learner, bool own = false) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* p : learner.model().parameters())
    if (own || !contains(p->path(), ".step"))
      all[p->path()] = p->has_master() ? p->master().elements() : p->value().values();
  for (const auto& b : learner.model().buffers())
    if (own || !contains(b.path, ".observer")) all[b.path] = b.tensor.elements();
  return all;
}

// A learner of these phases after three steps, saved.
std::unique_ptr<Learner> trained(const std::string& file, const std::optional<LayerQuant>& quant) {
  PhaseRun run;
  if (quant) run.phases = {{0, all_layers(*quant), kOn}};
  auto learner = phase_learner(run);
  train_some(*learner, 3);
  save_checkpoint(file, *learner, {}, "");
  return learner;
}
std::unique_ptr<Learner> fresh(const std::optional<LayerQuant>& quant) {
  PhaseRun run;
  if (quant) run.phases = {{0, all_layers(*quant), kOn}};
  return phase_learner(run);
}

const LayerQuant kLsq = with_input(held(dtypes::int4, "lsq"), dtypes::int8, "lsq");
const LayerQuant kObserved =
    with_input(held(dtypes::int8, "symmetric"), dtypes::int8, "symmetric", Granularity::tensor(), "moving_average");
const LayerQuant kMasterless = with_master(held(dtypes::int8, "absmax"), MasterKind::kNone);
const LayerQuant kBf16 = with_master(held(dtypes::uint4, "minmax_offset", Granularity::groups(4)), MasterKind::kBf16);

}  // namespace

TEST_CASE("values of a run are loaded exactly, running statistics too, for any storage there and here") {
  TempDir temp;
  const std::vector<std::optional<LayerQuant>> forms{std::nullopt, kLsq, kObserved, kMasterless, kBf16};
  for (size_t i = 0; i < forms.size(); ++i) {
    const auto from = trained(temp.file("c"), forms[i]);
    for (size_t j = 0; j < forms.size(); ++j) {
      INFO("from form " << i << " to form " << j);
      const auto to = fresh(forms[j]);
      const InitFrom found = init_from(temp.file("c"), to->model());
      // Weights, biases, and four of the batch norm; at the same precision learned parts and ranges, too.
      CHECK(std::count_if(found.taken.begin(), found.taken.end(), [](const std::string& path) {
              return !path.ends_with(".step") && !contains(path, ".observer.");
            }) == 10);
      CHECK((found.taken.size() > 10) == (i == j && (i == 1 || i == 2)));
      const auto wanted = numbers_of(*from), got = numbers_of(*to);
      REQUIRE(wanted.size() == got.size());
      for (const auto& [path, numbers] : wanted) {
        INFO(path);
        const bool rounds = contains(path, ".weight") && (j == 3 || j == 4);
        if (!rounds || i == j) CHECK(got.at(path) == numbers);
      }
      // Codes are those that prepare makes of the same numbers.
      for (Parameter* p : to->model().parameters()) {
        if (!p->low_bit() || !p->has_master()) continue;
        const auto codes = p->value().values();
        p->requantize(p->seed(), 0);
        CHECK(p->value().values() == codes);
      }
      CHECK(to->state().step == 0);
      train_some(*to, 2);
    }
  }
}

TEST_CASE("a quantized run that begins from a float run is the float run, prepared") {
  TempDir temp;
  const auto from = trained(temp.file("c"), std::nullopt);
  const auto to = fresh(kLsq), later = fresh(std::nullopt);
  init_from(temp.file("c"), to->model());
  // The twin takes the numbers as floats, and is prepared then.
  init_from(temp.file("c"), later->model());
  later->set_phases({{0, all_layers(kLsq), kOn}});
  train_some(*to, 3);
  train_some(*later, 3);
  CHECK(state_hash(*to, {}) == state_hash(*later, {}));
}

TEST_CASE("learned parts and observed ranges of another precision keep their initial values, and are reported") {
  TempDir temp;
  trained(temp.file("lsq"), kLsq);
  const auto to = fresh(kObserved), own = fresh(kObserved);
  const InitFrom found = init_from(temp.file("lsq"), to->model());
  for (const std::string& path : found.fresh) {
    INFO(path);
    CHECK(contains(path, ".input.observer."));
    CHECK(numbers_of(*to, true).at(path) == numbers_of(*own, true).at(path));
  }
  CHECK(found.fresh.size() == 9);
  CHECK(found.skipped.size() == 6);  // a step of each weight and of each input
  for (const std::string& path : found.skipped) CHECK(path.ends_with(".step"));
  const auto again = fresh(kLsq);
  const InitFrom same = init_from(temp.file("lsq"), again->model());
  CHECK(same.fresh.empty());  // at the same precision they are taken
  CHECK(same.skipped.empty());
  const InitFrom floats = init_from(temp.file("lsq"), fresh(std::nullopt)->model());
  CHECK(floats.fresh.empty());
  CHECK(floats.skipped.size() == 6);
}

TEST_CASE("a converted model gives the values of its codes") {
  TempDir temp;
  const auto from = trained(temp.file("c"), kBf16);
  convert(from->model());
  save_model(temp.file("m"), from->model(), {});
  const auto to = fresh(std::nullopt);
  init_from(temp.file("m"), to->model());
  for (Parameter* p : to->model().parameters())
    for (Parameter* q : from->model().parameters())
      if (p->path() == q->path()) CHECK(p->value().elements() == q->value().values());
}

TEST_CASE(
    "codes without masters that their scheme would not reproduce are reported, with the effect of the first update") {
  TempDir temp;
  for (const auto& [scheme, moves] :
       {std::pair<const char*, bool>{"symmetric", true}, {"absmax", false}, {"lsq", false}}) {
    INFO(scheme);
    const LayerQuant quant = held(dtypes::int4, scheme);
    const auto from = trained(temp.file("c"), quant);
    CHECK(init_from(temp.file("c"), fresh(quant)->model()).moving.empty());
    convert(from->model());
    save_model(temp.file("m"), from->model(), {});
    const auto to = fresh(quant);
    const std::vector<std::string> moving = init_from(temp.file("m"), to->model()).moving;
    CHECK(moving.empty() == !moves);
    CHECK(init_from(temp.file("m"), fresh(held(dtypes::int8, "symmetric"))->model()).moving.empty());
    bool moved = false;
    for (Parameter* p : to->model().parameters()) {
      if (!p->low_bit() || !p->has_master()) continue;
      const auto values = p->value().values();
      p->requantize(p->seed(), 0);
      if (p->value().values() == values) continue;
      moved = true;
      CHECK(std::find(moving.begin(), moving.end(), p->path()) != moving.end());
    }
    CHECK(moved == moves);
  }
}

TEST_CASE("a parameter that the file lacks, or has in another shape, is named") {
  TempDir temp;
  OptimizerSpec sgd;
  const auto save = [&](const std::vector<LayerSpec>& layers) {
    Learner learner(
        make_sequential(layers, kFeatures), find_loss("softmax_cross_entropy"), sgd, RequantPolicy{},
        [](int64_t) { return 0.1f; }, 1);
    save_checkpoint(temp.file("c"), learner, {}, "");
  };
  const auto error = [&] {
    const auto to = fresh(std::nullopt);
    const auto call = [&] { init_from(temp.file("c"), to->model()); };
    CHECK(error_code_of(call) == 3);
    return error_of(call);
  };
  save({linear_spec(24, dtypes::fp32, "")});
  CHECK(contains(error(), concat("[checkpoint] ", temp.file("c"),
                                 ": has no values for parameter 'layers.1.gamma' [24] of this model. model.rename")));
  save({linear_spec(25, dtypes::fp32, "")});
  CHECK(contains(error(), "tensor 'layers.0.weight.master' is [25,5] F32, expected [24,5] F32"));
  LayerSpec codes = linear_spec(25, dtypes::int4, "symmetric");
  codes.weight.frozen = true;
  save({codes});
  CHECK(contains(error(), "parameter 'layers.0.weight' is [25,5], the model has [24,5]"));
  const auto to = fresh(std::nullopt);
  CHECK(error_code_of([&] { init_from(temp.file("absent"), to->model()); }) == 3);
}

TEST_CASE("adapters that go on keep their alpha, from a run, a folder or its file") {
  const KeepModes keep;
  const TempDir temp;
  const std::string base = temp.file("base"), tuned = temp.file("tuned"), apart = temp.file("apart");
  const auto run = [&](std::vector<std::string> keys, const std::string& folder) {
    for (const char* key : {"data={train: {format: digits, size: 20}}", "~quant", "train.stop=2 steps",
                            "model.layers=[{linear: {out: 6}}, {relu: {}}, {linear: {out: 10}}]"})
      keys.push_back(key);
    const RunConfig config = small_config(keys);
    run_all(config, create_run_folder(config, folder));
  };
  const auto error = [&](const std::string& from, const std::string& adapters, const std::string& more = "run.seed=2") {
    const TempDir folder;
    return error_of([&] { run({"model.init_from=" + from, "adapters=" + adapters, more}, folder.file("run")); });
  };
  run({}, base);
  run({"model.init_from=" + base, "adapters={rank: 2, alpha: 4}"}, tuned);
  CHECK(error(tuned, "{rank: 2, alpha: 4}").empty());
  const std::string other = error(tuned, "{rank: 2, alpha: 8}");
  CHECK(contains(other, "last.safetensors was trained with adapters.alpha 4, got 8"));
  CHECK(contains(other, "model.ignore: ['*.adapter.*']"));
  CHECK(error(tuned, "{rank: 2, alpha: 8}", "model.ignore=['*.adapter.*']").empty());
  save_adapters(apart, load_evaluator(tuned + "/last.safetensors", find_loss("softmax_cross_entropy"))->model());
  const std::string file = apart + "/adapter_model.safetensors";
  for (const std::string& from : {apart, file}) {
    CHECK(error(base, concat("{rank: 2, alpha: 4, init_from: ", from, '}')).empty());
    CHECK(contains(error(base, concat("{rank: 2, alpha: 8, init_from: ", from, '}')),
                   "'layers.0' has rank 2 and alpha 4, the model's adapter rank 2 and alpha 8"));
  }
  std::filesystem::remove(apart + "/adapter_config.json");
  const LogLines log;
  CHECK(error(base, concat("{rank: 2, alpha: 8, init_from: ", file, '}')).empty());
  CHECK(std::count_if(log.warnings.begin(), log.warnings.end(), [](const std::string& w) {
          return contains(w, "the model's alpha is not known, and is assumed");
        }) == 1);
}
