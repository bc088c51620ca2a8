// Forms of one model over time: which evaluations are compared, which checkpoint of a run is the model, and what a
// second run takes from a first one.
#include <algorithm>
#include <fstream>
#include <set>

#include "bitgrad/base/json.h"
#include "bitgrad/infer/predictor.h"
#include "bitgrad/io/tensors.h"
#include "bitgrad/quant/observer.h"
#include "bitgrad/tools/ptq.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/phase_runs.h"
#include "train/phases.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Floats learn more in these three epochs than int2 codes in two.
constexpr const char* kFloatFirst = R"yaml(version: 1
run: {name: forms, seed: 5}
data:
  train: {format: digits, size: 60}
  valid: {format: digits, size: 40, seed: 3}
  test: {format: digits, size: 30}
model: {layers: [linear: {out: 12}, relu: {}, linear: {out: 10}]}
quant:
  recipe: int2wo
  phases: [{from: 0 steps, quantization: off}, {from: 3 epochs}]
batch: {global: 10}
optim: {name: adam, lr: 0.02}
train: {stop: 5 epochs}
)yaml";

RunConfig float_first(const std::vector<std::string>& overrides = {}) { return small_config(overrides, kFloatFirst); }

bool any_with(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return contains(line, part); });
}

Json json_of(const std::string& path) { return Json::parse(text_of(path)); }

// The bytes of every value and buffer, by name.
std::map<std::string, std::vector<double>> state_of(Learner& learner, const std::string& file) {
  save_checkpoint(file, learner, {}, "");
  std::map<std::string, std::vector<double>> out;
  for (const auto& [name, t] : load_tensors(file))
    if (!contains(name, ".adam.")) {
      out[name] = t.elements();
      if (t.quant() != nullptr && t.quant()->scale) out[name + ".scale"] = t.quant()->scale->elements();
      if (t.quant() != nullptr && t.quant()->offset) out[name + ".offset"] = t.quant()->offset->elements();
    }
  return out;
}

std::unique_ptr<Learner> in_form(const LayerQuant& quant) {
  PhaseRun run;
  run.phases = {{0, all_layers(quant), kOn}};
  return phase_learner(run);
}

}  // namespace

TEST_CASE("best is the best of the last form, in checkpoints, summary and report, and so after a resume at any step") {
  const KeepModes keep;
  const TempDir temp;
  const std::string folder = create_run_folder(float_first(), temp.file("run"));
  const TrainOutcome whole = run_all(float_first(), folder);
  CHECK((whole.counters.best_epoch == 4 || whole.counters.best_epoch == 5));
  CHECK(whole.packed);
  CHECK(whole.form_since == 18);
  const std::string best = folder + "/best.safetensors";
  CHECK(read_checkpoint_header(best).phase == 1);
  CHECK(read_checkpoint_header(best).step == whole.counters.best_step);
  CHECK(load_tensors(best).at("layers.0.weight").dtype() == dtypes::int2);
  const Json summary = json_of(folder + "/summary.json");
  CHECK(summary.at("best_step") == whole.counters.best_step);
  CHECK(summary.at("phase") == 1);
  CHECK(summary.at("form_since") == 18);
  CHECK(json_of(folder + "/evaluation.json").at("step") == whole.counters.best_step);
  CHECK(contains(text_of(folder + "/report.html"), "Only evaluations since step 18 were compared"));
  for (const int64_t step : {15, 17, 18, 19, 21, 24}) {
    INFO("stopped after step " << step);
    const std::string part = create_run_folder(float_first(), temp.file(concat("part", step)));
    run_part(float_first(), part, step);
    CHECK(resume_run(part).state_hash == whole.state_hash);
  }
  // Without phases nothing is said of forms, and floats are no codes.
  const TrainOutcome plain = run_all(float_first({"~quant.phases", "~quant.recipe", "train.stop=1 epochs"}));
  CHECK_FALSE(plain.packed);
  CHECK_FALSE(plain.form_since.has_value());
}

TEST_CASE("early stop waits for the last form, and its patience starts anew there") {
  const KeepModes keep;
  const TempDir temp;
  // No evaluation but the first of a form is better by so much.
  const std::vector<std::string> keys{"train.early_stop={metric: loss, patience: 1, min_delta: 1000}",
                                      "train.stop=9 epochs"};
  const std::string folder = create_run_folder(float_first(keys), temp.file("run"));
  const LogLines lines;
  const TrainOutcome stopped = run_all(float_first(keys), folder);
  CHECK(stopped.ended_by == "train.early_stop");
  CHECK(stopped.optimizer_steps == 30);  // epoch 4 is the first of the last form, epoch 5 does not improve
  CHECK(any_with(lines.warnings, "phase 1, from step 18 on, gives the model its last form: the run goes on"));
  // Where the last form is never reached, early stop ends the run in the form before.
  CHECK(run_all(float_first({keys[0], "train.stop=3 epochs"})).optimizer_steps == 12);
  // A phase that changes no form is no reason to wait, but a run that ends before it says so.
  std::vector<std::string> later = keys;
  later.push_back("quant.phases=[{from: 0 steps}, {from: 6 epochs, recipe: int2wo}, {from: 7 epochs}]");
  const TrainOutcome early = run_all(float_first(later));
  CHECK(early.optimizer_steps == 12);
  CHECK(any_with(lines.warnings, "the run ended in phase 0, before quant.phases.1 began (from step 36)"));
}

TEST_CASE(
    "a phase of other activations, fixed ranges or fixed scales is another form; one that changes nothing is not") {
  const auto form_starts = [](const LayerQuant& first, const QuantPhase& second) {
    PhaseRun run;
    run.phases = {{0, all_layers(first), kOn}, second};
    return phase_learner(run)->train_state().phases->form_start(1);
  };
  const LayerQuant weights = held(dtypes::int4, "symmetric"), both = with_input(weights, dtypes::int8, "symmetric");
  const LayerQuant observed = with_input(weights, dtypes::int8, "symmetric", Granularity::tensor(), "moving_average");
  CHECK(form_starts(weights, {4, all_layers(both), kOn}) == 1);
  CHECK(form_starts(observed, {4, std::nullopt, kFixedRanges}) == 1);
  CHECK(form_starts(weights, {4, std::nullopt, kFrozen}) == 1);
  CHECK(form_starts(weights, {4, std::nullopt, kOff}) == 1);
  CHECK(form_starts(weights, {4, std::nullopt, kOn}) == 0);
  CHECK(form_starts(both, {4, all_layers(both), kOn}) == 0);
  CHECK(form_starts(weights, {4, std::nullopt, kFixedRanges}) == 0);  // no ranges are observed
  CHECK(form_starts(LayerQuant{}, {4, std::nullopt, kOff}) == 0);     // nothing is quantized
}

TEST_CASE("a run folder is its best checkpoint if data.valid chose it, else its last; both can be asked for") {
  const KeepModes keep;
  const TempDir temp;
  const RunConfig config = float_first({"optim.lr=0.5", "train.stop=12 epochs", "~quant.phases"});
  const std::string run = create_run_folder(config, temp.file("run"));
  const TrainOutcome outcome = run_all(config, run);
  REQUIRE(outcome.counters.best_step < outcome.optimizer_steps);
  const std::string best = run + "/best.safetensors", last = run + "/last.safetensors";
  std::string told;
  const LogLines lines;
  CHECK(checkpoint_of(run, CheckpointChoice::kChosen, &told) == best);
  CHECK(told == "the model is " + best + ", which data.valid chose");
  CHECK(any_with(lines.lines, told));
  CHECK(checkpoint_of(run, CheckpointChoice::kLast) == last);
  CHECK(checkpoint_of(run, CheckpointChoice::kBest) == best);
  CHECK(checkpoint_of(last, CheckpointChoice::kChosen, &told) == last);
  CHECK(told.empty());
  CHECK(open_model(run)->file().path == best);
  CHECK(open_model(run, {}, CheckpointChoice::kLast)->file().path == last);
  CHECK(open_file(run).header.step == outcome.counters.best_step);
  CHECK(
      contains(error_of([&] { checkpoint_of(last, CheckpointChoice::kBest); }), "select a checkpoint of a run folder"));
  // data.test may measure, not choose.
  const RunConfig by_test = float_first({"optim.lr=0.5", "train.stop=12 epochs", "~quant.phases", "~data.valid"});
  const std::string other = create_run_folder(by_test, temp.file("other"));
  run_all(by_test, other);
  CHECK(checkpoint_of(other) == other + "/last.safetensors");
  CHECK(checkpoint_of(other, CheckpointChoice::kBest) == other + "/best.safetensors");
  // A best model of another form than the last one is none of this model: nothing was evaluated since.
  const std::string cut = create_run_folder(float_first({"train.eval.every=3 epochs"}), temp.file("cut"));
  run_part(float_first({"train.eval.every=3 epochs"}), cut, 20);
  CHECK(checkpoint_of(cut, CheckpointChoice::kChosen, &told) == cut + "/last.safetensors");
  CHECK(contains(told, "nothing was evaluated since the model got its form"));
}

TEST_CASE("at unchanged precision a second run loads codes, learned parts and ranges bit for bit") {
  const TempDir temp;
  const auto input = [](DType dtype, const std::string& scheme, const std::string& observer = "") {
    return with_input(held(dtypes::int2, "lsq"), dtype, scheme, Granularity::tensor(), observer);
  };
  std::vector<LayerQuant> forms{input(dtypes::uint2, "lsq"),
                                input(dtypes::uint4, "pact"),
                                with_input(held(dtypes::int4, "lsq_plus"), dtypes::uint4, "lsq_plus"),
                                with_master(held(dtypes::int4, "absmax"), MasterKind::kBf16),
                                with_master(held(dtypes::int8, "absmax"), MasterKind::kNone),
                                held(dtypes::ternary, "ternary")};
  for (const std::string_view observer : observer_names())
    forms.push_back(input(dtypes::int8, "symmetric", std::string(observer)));
  for (size_t i = 0; i < forms.size(); ++i) {
    INFO("form " << i);
    const auto from = in_form(forms[i]);
    train_some(*from, 5);
    const auto first = state_of(*from, temp.file("first"));
    const auto to = in_form(forms[i]);
    const InitFrom found = init_from(temp.file("first"), to->model());
    CHECK(found.fresh.empty());
    CHECK(found.skipped.empty());
    const auto second = state_of(*to, temp.file("second"));
    REQUIRE(first.size() == second.size());
    for (const auto& [name, numbers] : first) {
      INFO(name);
      CHECK(second.at(name) == numbers);
    }
    // A converted file has no learned parts of weights: they are those of its codes.
    from->convert();
    save_converted(temp.file("model"), *from, {});
    const auto third = in_form(forms[i]);
    CHECK(init_from(temp.file("model"), third->model()).fresh.empty());
    const auto codes = state_of(*third, temp.file("third"));
    for (const auto& [name, numbers] : first)
      if (!name.ends_with(".master")) {
        INFO(name);
        CHECK(codes.at(name) == numbers);
      }
  }
}

TEST_CASE("at another precision learned parts and ranges begin anew, layer by layer, and are reported") {
  const TempDir temp;
  const auto from = in_form(with_input(held(dtypes::int2, "lsq"), dtypes::uint2, "lsq"));
  train_some(*from, 5);
  state_of(*from, temp.file("first"));
  PrepareSpec spec = all_layers(with_input(held(dtypes::int2, "lsq"), dtypes::uint2, "lsq"));
  spec.rules.push_back({"layers.4", with_input(held(dtypes::int4, "lsq"), dtypes::uint4, "lsq")});
  PhaseRun run;
  run.phases = {{0, spec, kOn}};
  const auto to = phase_learner(run);
  const InitFrom found = init_from(temp.file("first"), to->model());
  CHECK(found.fresh == std::vector<std::string>{"layers.4.weight.step", "layers.4.input.step"});
  CHECK(found.skipped.empty());
  // Another observer, or none: its ranges are of no use.
  const auto observed = in_form(
      with_input(held(dtypes::int2, "lsq"), dtypes::int8, "symmetric", Granularity::tensor(), "moving_average"));
  train_some(*observed, 2);
  state_of(*observed, temp.file("observed"));
  const auto widest =
      in_form(with_input(held(dtypes::int2, "lsq"), dtypes::int8, "symmetric", Granularity::tensor(), "min_max"));
  CHECK(init_from(temp.file("observed"), widest->model()).fresh.size() == 9);
  const auto none = in_form(held(dtypes::int2, "lsq"));
  const InitFrom without = init_from(temp.file("observed"), none->model());
  CHECK(without.skipped.size() == 9);
  CHECK(without.quantization == without.skipped);
}

TEST_CASE("a second run skips and renames parts of a file of bitgrad, and reports them") {
  const KeepModes keep;
  const TempDir temp;
  const std::vector<std::string> floats{"~quant.phases", "~quant.recipe", "train.stop=1 epochs", "~data.valid"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), floats.begin(), floats.end());
    return float_first(more);
  };
  const std::string base = create_run_folder(with({}), temp.file("base"));
  run_all(with({}), base);
  const NamedTensors first = load_tensors(base + "/last.safetensors");
  const std::string from = "model.init_from=" + base;
  const std::string head =
      "model.layers=[{linear: {out: 12}}, {relu: {}}, {dropout: {p: 0.1}}, {linear: {out: 20}}, {linear: {out: 10}}]";
  // A layer that is inserted shifts the paths.
  {
    const std::string same = "model.layers=[{linear: {out: 12}}, {relu: {}}, {dropout: {p: 0.1}}, {linear: {out: 10}}]";
    Trainer shifted(with({from, same, "model.rename={layers.3: layers.2}"}));
    const LogLines lines;
    shifted.start();
    CHECK(lines.warnings.empty());
    for (Parameter* p : shifted.learner().model().parameters())
      if (p->path() == "layers.3.weight") CHECK(p->value().elements() == first.at("layers.2.weight.master").elements());
  }
  // Another head begins anew, and so does a layer that the file lacks.
  Trainer own(with({head}));
  Trainer left(with({from, head, "model.rename={layers.3: layers.2}", "model.ignore=[layers.2.*, layers.4.*]"}));
  const LogLines lines;
  left.start();
  REQUIRE(lines.warnings.size() == 1);
  CHECK(contains(lines.warnings[0],
                 "model.ignore leaves out layers.2.bias, layers.2.weight; own initial values: layers.3.weight, "
                 "layers.3.bias, layers.4.weight, layers.4.bias"));
  std::map<std::string, std::vector<double>> fresh;
  for (Parameter* p : own.learner().model().parameters()) fresh[p->path()] = p->value().elements();
  for (Parameter* p : left.learner().model().parameters()) {
    const bool of_head = !contains(p->path(), "layers.0");
    CHECK(p->value().elements() == (of_head ? fresh.at(p->path()) : first.at(p->path() + ".master").elements()));
  }
  // What does not fit is an error that says how to leave it out; what has no place is a warning.
  const auto error = [&](const std::vector<std::string>& keys) {
    Trainer trainer(with(keys));
    return error_of([&] { trainer.start(); });
  };
  const std::string wide = "model.layers=[{linear: {out: 20}}, {relu: {}}, {linear: {out: 10}}]";
  CHECK(contains(error({from, wide}), "tensor 'layers.0.weight.master' is [12,784] F32, expected [20,784] F32"));
  CHECK(contains(error({from, wide}), "model.ignore leaves names of the file out, such as ['layers.0.*']"));
  CHECK(contains(error({from, head}), "has no values for parameter 'layers.3.weight'"));
  CHECK(contains(error({from, head, "model.rename={layers.9: layers.2}"}), "'layers.9' matches no parameter"));
  CHECK(contains(error({from, "model.rename={layers.2.weight: layers.2.weight transpose}"}), "expected a name alone"));
  Trainer shorter(
      with({from, "model.layers=[{linear: {out: 12}}, {linear: {out: 10}}]", "model.rename={layers.1: layers.2}"}));
  shorter.start();
  CHECK(lines.warnings.size() == 1);
  const std::string less_layers = "model.layers=[{linear: {out: 10}}]";
  CHECK(contains(error({from, less_layers, "model.ignore=[layers.0.*, nothing.*]"}),
                 "model.ignore: 'nothing.*' matches no name of the file"));
  Trainer less(with({from, less_layers, "model.ignore=[layers.0.*]"}));
  less.start();
  CHECK(any_with(lines.warnings, "this model has no place for layers.2.bias, layers.2.weight"));
}

TEST_CASE("a second run whose inputs are normalized otherwise is an error with both, unless it is accepted") {
  const KeepModes keep;
  const TempDir temp;
  const std::string base = create_run_folder(float_first({"train.stop=1 epochs"}), temp.file("base"));
  run_all(float_first({"train.stop=1 epochs"}), base);
  const std::string from = "model.init_from=" + base;
  const auto error = [&](const std::vector<std::string>& keys) {
    Trainer trainer(float_first(keys));
    return error_of([&] { trainer.start(); });
  };
  CHECK(contains(error({from, "data.affine=[2, -1]"}), "got data.affine: [2, -1], the run of "));
  CHECK(contains(error({from, "data.affine=[2, -1]"}), "had data.affine: [1, 0]"));
  CHECK(contains(error({from, "data.normalize={mean: [0.5], std: [0.25]}"}),
                 "got data.normalize: {mean: [0.5], std: [0.25]}"));
  Trainer accepted(float_first({from, "data.affine=[2, -1]", "model.other_inputs=true"}));
  CHECK_NOTHROW(accepted.start());
}
