// Phases of quantization: what an entry changes, what it leaves alone, and what is refused before training.
#include <set>

#include "bitgrad/checkpoint/checkpoint.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "train/phase_runs.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::map<std::string, std::vector<double>> masters_of(Learner& learner) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* p : learner.model().parameters())
    if (p->has_master()) all[p->path()] = p->master().elements();
  return all;
}
std::map<std::string, std::vector<double>> moments_of(Learner& learner) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& s : learner.optimizer().state()) all[s.name] = s.tensor.elements();
  return all;
}
Parameter& parameter(Learner& learner, const std::string& path) {
  for (Parameter* p : learner.model().parameters())
    if (p->path() == path) return *p;
  throw std::runtime_error("no parameter " + path);
}

// Calls `see` in the first forward of the next microbatch: after an entry, before anything moves.
void look_inside(Learner& learner, const std::function<void()>& see) {
  bool seen = false;
  learner.state().on_forward = [&](const std::string&, const Tensor&, const Tensor&) {
    if (!std::exchange(seen, true)) see();
  };
  train_some(learner, 1);
  learner.state().on_forward = nullptr;
  REQUIRE(seen);
}

std::string refused(const std::vector<QuantPhase>& phases, int64_t index, const PhaseRun& run = {}) {
  PhaseRun r = run;
  r.phases = phases;
  try {
    phase_learner(r);
  } catch (const PhaseError& e) {
    CHECK(e.phase() == index);
    CHECK(e.code() == ErrorCode::kUsage);
    return e.what();
  }
  return "";
}

const LayerQuant kInt4 = held(dtypes::int4, "symmetric");

}  // namespace

TEST_CASE("an entry leaves masters and moments alone, makes codes of the masters, and new parts begin at zero") {
  PhaseRun run;
  run.phases = {{0, std::nullopt, kOn},
                {3, all_layers(held(dtypes::int4, "lsq")), kOn},
                {5, all_layers(held(dtypes::int3, "symmetric")), kOn},
                {7, std::nullopt, kOff}};
  const auto learner = phase_learner(run);
  train_some(*learner, 3);
  for (const int64_t phase : {1, 2, 3}) {
    INFO("phase " << phase);
    auto masters = masters_of(*learner);
    const auto moments = moments_of(*learner);
    CHECK(learner->phase() == phase - 1);
    look_inside(*learner, [&] {
      CHECK(learner->phase() == phase);
      const auto now = masters_of(*learner);
      for (const auto& [path, numbers] : masters)
        if (!contains(path, ".step")) CHECK(now.at(path) == numbers);
      for (const auto& [name, numbers] : moments_of(*learner)) {
        const auto before = moments.find(name);
        CHECK(numbers == (before != moments.end() ? before->second : std::vector<double>(numbers.size(), 0.0)));
        if (phase == 1) CHECK((before == moments.end()) == contains(name, ".step."));
      }
      Parameter& w = parameter(*learner, "layers.4.weight");
      CHECK(w.low_bit() == (phase != 3));
      if (!w.low_bit()) return;
      CHECK(w.value().dtype() == (phase == 1 ? dtypes::int4 : dtypes::int3));
      const auto codes = w.value().elements();
      w.requantize(w.seed(), learner->state().step);
      CHECK(w.value().elements() == codes);
    });
    train_some(*learner, 1);
  }
  CHECK(learner->optimizer().steps() == 9);
}

TEST_CASE("masters become codes before an entry, and requantizations are counted from there") {
  PhaseRun run;
  run.accumulate = 1;
  run.every = 4;
  run.phases = {{0, all_layers(kInt4), kOn}, {2, std::nullopt, kFixedRanges}};
  const auto learner = phase_learner(run);
  train_some(*learner, 2);
  CHECK(learner->since_requantize() == 2);
  Parameter& w = parameter(*learner, "layers.0.weight");
  const auto stale = w.value().elements();
  look_inside(*learner, [&] {
    CHECK(learner->since_requantize() == 0);
    CHECK(w.value().elements() != stale);
  });
  CHECK(learner->since_requantize() == 1);
  train_some(*learner, 3);
  CHECK(learner->since_requantize() == 0);
}

TEST_CASE("one phase from the start is the model that was made like that") {
  OptimizerSpec adam;
  adam.name = "adam";
  const auto learner_of = [&](const LayerSpec& first) {
    return std::make_unique<Learner>(
        make_sequential({first, plain_spec("relu"), linear_spec(3, dtypes::fp32, "")}, kFeatures),
        find_loss("softmax_cross_entropy"), adam, RequantPolicy{}, [](int64_t) { return 0.05f; }, 3);
  };
  const auto made = learner_of(linear_spec(12, dtypes::int4, "lsq", Granularity::channel(0))),
             prepared = learner_of(linear_spec(12, dtypes::fp32, ""));
  PrepareSpec spec;
  spec.rules.push_back({"layers.0", held(dtypes::int4, "lsq")});
  prepared->set_phases({{0, spec, kOn}});
  for (const auto& learner : {made.get(), prepared.get()}) {
    learner->plan({.input = {.sample = {kFeatures}}, .outputs = 3, .train_samples = 6, .eval_samples = 6});
    train_some(*learner, 4);
  }
  CHECK(state_hash(*made, {}) == state_hash(*prepared, {}));
}

TEST_CASE("trying all phases at the start leaves no trace in the numbers") {
  for (PhaseRun run : phase_runs()) {
    INFO(run.name);
    const auto full = phase_learner(run);
    run.phases.resize(1);
    const auto first = phase_learner(run);
    CHECK(masters_of(*full) == masters_of(*first));
    for (Parameter* p : first->model().parameters())
      CHECK(parameter(*full, p->path()).value().values() == p->value().values());
    REQUIRE(full->model().buffers().size() == first->model().buffers().size());
    for (size_t i = 0; i < first->model().buffers().size(); ++i)
      CHECK(full->model().buffers()[i].tensor.elements() == first->model().buffers()[i].tensor.elements());
  }
}

TEST_CASE("a frozen phase keeps scales and learned parts, and codes follow the masters") {
  PhaseRun run;
  run.phases = {{0, all_layers(with_input(held(dtypes::int4, "lsq"), dtypes::int8, "lsq")), kOn},
                {3, std::nullopt, kFrozen}};
  const auto learner = phase_learner(run);
  train_some(*learner, 4);
  Parameter& w = parameter(*learner, "layers.4.weight");
  const auto scales = w.value().quant()->scale->elements(), codes = w.value().elements(),
             step = parameter(*learner, "layers.4.weight.step").value().elements(),
             input = parameter(*learner, "layers.4.input.step").value().elements();
  train_some(*learner, 6);
  CHECK(w.value().quant()->scale->elements() == scales);
  CHECK(w.value().elements() != codes);
  CHECK(parameter(*learner, "layers.4.weight.step").value().elements() == step);
  CHECK(parameter(*learner, "layers.4.input.step").value().elements() == input);
}

TEST_CASE("observers see a phase that is switched off, and rest where they are switched off") {
  const LayerQuant observed =
      with_input(held(dtypes::int8, "symmetric"), dtypes::int8, "symmetric", Granularity::tensor(), "min_max");
  PhaseRun run;
  run.phases = {{0, all_layers(observed), kOff}, {3, std::nullopt, kFixedRanges}};
  const auto learner = phase_learner(run);
  const auto ranges = [&] {
    std::vector<double> all;
    for (const auto& b : learner->model().buffers())
      if (contains(b.path, "observer"))
        for (const double x : b.tensor.elements()) all.push_back(x);
    return all;
  };
  const auto none = ranges();
  CHECK_FALSE(none.empty());
  train_some(*learner, 3);
  const auto seen = ranges();
  CHECK(seen != none);
  train_some(*learner, 3);
  CHECK(ranges() == seen);
}

TEST_CASE("updates are fused after an entry too") {
  const KeepModes keep;
  set_bits_mode(BitsMode::kStrict);  // in fast mode a library may make the gradients
  PhaseRun run;
  run.phases = {{0, std::nullopt, kOn}, {2, all_layers(kInt4), kOn}};
  const auto learner = phase_learner(run);
  for (const int64_t phase : {0, 1}) {
    train_some(*learner, phase == 0 ? 2 : 1);
    CHECK(learner->phase() == phase);
    for (const auto& u : learner->fused_updates())
      if (u.path.ends_with(".weight")) CHECK(u.path + u.why_not == u.path);
  }
}

TEST_CASE("layouts are those of the phase, for any phases before") {
  PhaseRun run;
  const LayerQuant weights = held(dtypes::bint1, "binary", {});
  run.phases = {{0, all_layers(with_input(weights, dtypes::bint1, "binary")), kOn},
                {2, all_layers(weights), kOn},
                {4, std::nullopt, kOff}};
  const auto layouts_of = [](Learner& learner) {
    std::vector<std::string> names;
    for (const Parameter* p : learner.model().parameters())
      for (const Tensor& t : p->value().attached_layouts()) names.push_back(concat(p->path(), ' ', t.layout()));
    return names;
  };
  const auto trained = phase_learner(run);
  std::set<std::vector<std::string>> all;
  for (const int64_t phase : {0, 1, 2}) {
    INFO("phase " << phase);
    train_some(*trained, phase == 0 ? 1 : 2);
    const auto resumed = phase_learner(run);
    resumed->enter_phase(phase);
    CHECK(trained->phase() == phase);
    CHECK(layouts_of(*trained) == layouts_of(*resumed));
    all.insert(layouts_of(*resumed));
  }
  // Signs by signs, and none; between them what reads signs beside values, where an instruction set has such a row.
  CHECK(all.size() >= 2);
}

TEST_CASE("phases of a model of ids are tried and entered") {
  LayerSpec embedding = plain_spec("embedding");
  embedding.attributes["num"] = 11;
  embedding.attributes["dim"] = 6;
  OptimizerSpec adam;
  adam.name = "adam";
  Learner learner(
      std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
          make_layer(embedding, 4), make_layer(linear_spec(3, dtypes::fp32, ""), 4 * 6)}),
      find_loss("softmax_cross_entropy"), adam, RequantPolicy{}, [](int64_t) { return 0.05f; }, 3);
  learner.set_phases({{0, std::nullopt, kOn}, {1, all_layers(kInt4), kOn}});
  learner.plan({.input = {.sample = {4}, .dtype = dtypes::int32}, .outputs = 3, .train_samples = 2, .eval_samples = 2});
  const Tensor ids = Tensor::from_elements({2, 4}, dtypes::int32, std::vector<double>{1, 2, 3, 4, 10, 0, 10, 7});
  for (int step = 0; step < 3; ++step) learner.microbatch(ids, std::vector<int32_t>{0, 2});
  CHECK(learner.phase() == 1);
  CHECK(parameter(learner, "layers.1.weight").value().dtype() == dtypes::int4);
}

TEST_CASE("an entry is logged with its step and the table of layers") {
  const LogLines log;
  const std::vector<std::string>& lines = log.lines;
  PhaseRun run;
  run.phases = {{0, std::nullopt, kOn}, {2, all_layers(kInt4), kFixedRanges}};
  const auto learner = phase_learner(run);
  train_some(*learner, 2);
  CHECK(lines.empty());
  train_some(*learner, 1);
  REQUIRE(lines.size() > 3);
  CHECK(lines[0] == "phase 1 at step 2: quantization on, observers off, all layers int4 symmetric");
  CHECK(lines[1] == "layer     rule  recipe");
  CHECK(lines[2] == "layers.0  all   int4 symmetric");
  bool table = false;
  for (const std::string& line : lines) table = table || contains(line, "layers.4");
  CHECK(table);
}

TEST_CASE("fp32 numbers of a phase that was off are quantized once, also where a layer becomes an integer one") {
  const LayerQuant masterless = with_master(held(dtypes::int2, "absmax"), MasterKind::kNone);
  LayerQuant integer = with_input(held(dtypes::int4, "symmetric", {}), dtypes::int8, "absmax", Granularity::tensor());
  integer.compute = Compute::kIntegerOut;
  PrepareSpec next = all_layers(kInt4);
  next.first = integer;
  LayerSpec quantize = plain_spec("quantize");
  quantize.activation = ActivationQuant{*integer.input};
  OptimizerSpec adam;
  adam.name = "adam";
  Learner learner(
      make_sequential({linear_spec(4, dtypes::fp32, ""), quantize, linear_spec(3, dtypes::fp32, "")}, kFeatures),
      find_loss("softmax_cross_entropy"), adam, RequantPolicy{}, [](int64_t) { return 0.05f; }, 3);
  learner.set_phases({{0, all_layers(masterless), kOff}, {2, next, kOn}});
  learner.plan({.input = {.sample = {kFeatures}}, .outputs = 3, .train_samples = 6, .eval_samples = 6});
  train_some(learner, 2);
  const auto numbers = parameter(learner, "layers.2.weight").value().elements();
  look_inside(learner, [&] {
    CHECK(learner.phase() == 1);
    CHECK(parameter(learner, "layers.2.weight").value().dtype() == dtypes::int4);
    CHECK(parameter(learner, "layers.2.weight").master().elements() == numbers);
  });
}

TEST_CASE("a phase that is the only one is refused with its name too") {
  const QuantPhase masterless{0, all_layers(with_master(kInt4, MasterKind::kNone)), kOn};
  CHECK(contains(refused({masterless}, 0), "[phases] phase 0 (from step 0): [optimizer] parameter 'layers.0.weight'"));
  PhaseRun stale;
  stale.every = 2;
  CHECK(
      contains(refused({{0, all_layers(with_master(held(dtypes::int8, "absmax"), MasterKind::kNone)), kOn}}, 0, stale),
               "phase 0 (from step 0): [requantize_every] parameter 'layers.0.weight' has no master"));
}

TEST_CASE("a phase begins with the step after its start: the state on the boundary is of the phase before") {
  for (const PhaseRun& run : phase_runs()) {
    INFO(run.name);
    const auto learner = phase_learner(run);
    std::vector<int64_t> phases{learner->phase()};
    for (int64_t step = 0; step < 11; ++step) {
      train_some(*learner, run.accumulate);
      phases.push_back(learner->phase());
    }
    for (size_t i = 1; i < run.phases.size(); ++i) {
      CHECK(phases[static_cast<size_t>(run.phases[i].from)] == static_cast<int64_t>(i) - 1);
      CHECK(phases[static_cast<size_t>(run.phases[i].from) + 1] == static_cast<int64_t>(i));
    }
  }
}

TEST_CASE("the state hash sees the phase where there are several") {
  PhaseRun run;
  run.phases = {{0, all_layers(kInt4), kOn}, {9, std::nullopt, kFixedRanges}};
  const auto learner = phase_learner(run);
  const std::string first = state_hash(*learner, {});
  learner->enter_phase(1);
  CHECK(state_hash(*learner, {}) != first);
  run.phases.resize(1);
  CHECK(state_hash(*phase_learner(run), {}) != first);
}

TEST_CASE("phases that are out of order are refused") {
  CHECK(refused({{1, std::nullopt, kOn}}, 0) == "[phases] the first phase begins at step 0: got step 1");
  CHECK(refused({{0, std::nullopt, kOn}, {4, std::nullopt, kOff}, {4, std::nullopt, kOn}}, 2) ==
        "[phases] phase 2 begins after the previous one: got step 4, expected 5 or more");
  const auto learner = phase_learner({});
  train_some(*learner, 1);
  CHECK(contains(error_of([&] {
                   learner->set_phases({{0, std::nullopt, kOn}});
                 }),
                 "before the first microbatch: got 1"));
  CHECK(contains(error_of([&] { learner->enter_phase(1); }), "got phase 1, expected one of 1"));
}

TEST_CASE("a later phase that cannot be entered is found at the start") {
  const QuantPhase start{0, std::nullopt, kOn};
  PrepareSpec nowhere;
  nowhere.rules.push_back({"layers.40", kInt4});
  const std::string glob = refused({start, {5, nowhere, kOn}}, 1);
  CHECK(contains(glob, "[phases] phase 1 (from step 5): [prepare] "));
  CHECK(contains(glob, "'layers.40' matches no layer"));
  const std::string scheme =
      refused({start, {5, all_layers(kInt4), kOn}, {7, all_layers(held(dtypes::int4, "binary")), kOn}}, 2);
  CHECK(contains(scheme, "phase 2 (from step 7): "));
  CHECK(contains(scheme, "binary"));
  PhaseRun stale;
  stale.every = 2;
  CHECK(contains(
      refused({start, {5, all_layers(with_master(held(dtypes::int8, "absmax"), MasterKind::kNone)), kOn}}, 1, stale),
      "phase 1 (from step 5): [requantize_every] parameter 'layers.0.weight' has no master"));
  CHECK(contains(refused({start, {5, all_layers(with_master(kInt4, MasterKind::kNone)), kOn}}, 1),
                 "[optimizer] parameter 'layers.0.weight': "));
}

TEST_CASE("a later phase whose layers do not fit together is found by plan") {
  LayerQuant integer = kInt4;
  integer.weight->granularity = {};
  integer.compute = Compute::kIntegerOut;
  PrepareSpec spec;
  spec.rules.push_back({"layers.0", integer});
  const std::string text = refused({{0, std::nullopt, kOn}, {5, spec, kOn}}, 1);
  CHECK(contains(text, "phase 1 (from step 5): "));
  CHECK(contains(text, "compute: integer_out needs quantized input"));
}

TEST_CASE("compute integer_out cannot be switched off") {
  LayerQuant integer = with_input(held(dtypes::int4, "symmetric", {}), dtypes::int8, "absmax", Granularity::tensor());
  integer.compute = Compute::kIntegerOut;
  PrepareSpec spec;
  spec.rules.push_back({"layers.6", integer});
  const std::string text = refused({{0, spec, kOn}, {5, std::nullopt, kOff}}, 1);
  CHECK(contains(text, "phase 1 (from step 5): "));
  CHECK(contains(text, "compute: integer_out"));
  CHECK(contains(text, "off"));
}

TEST_CASE("a learner whose phases were refused reports that it cannot be used") {
  const auto learner = phase_learner({});
  PrepareSpec nowhere;
  nowhere.rules.push_back({"layers.40", kInt4});
  CHECK(error_code_of([&] { learner->set_phases({{0, std::nullopt, kOn}, {2, nowhere, kOn}}); }) == 2);
  CHECK_FALSE(learner->usable());
  CHECK(contains(error_of([&] { train_some(*learner, 1); }), "its layers are between two phases"));
}

TEST_CASE("masters that hold no numbers end the entry, and the learner with it") {
  PhaseRun run;
  run.phases = {{0, std::nullopt, kOn}, {2, all_layers(kInt4), kOn}};
  const auto learner = phase_learner(run);
  train_some(*learner, 2);
  parameter(*learner, "layers.4.weight").master().as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  const auto step = [&] { train_some(*learner, 1); };
  const std::string text = error_of(step);
  CHECK(contains(text, "phase 1 (from step 2): "));
  CHECK(contains(text, "'layers.4.weight'"));
  CHECK_FALSE(learner->usable());
  CHECK(contains(error_of(step), "ended the entry of phase 1 at optimizer step 2"));
}

TEST_CASE("a converted learner is evaluated as before, and trains no more") {
  PhaseRun run;
  run.phases = {{0, all_layers(with_input(kInt4, dtypes::int8, "affine", Granularity::token())), kOn}};
  const auto learner = phase_learner(run);
  train_some(*learner, 3);
  const Tensor x = random_tensor({6, kFeatures}, dtypes::fp32, 9);
  const auto logits = bits_of(learner->predict(x));
  learner->convert();
  CHECK(bits_of(learner->predict(x)) == logits);
  CHECK(contains(error_of([&] { train_some(*learner, 1); }), "it can only be evaluated"));
  CHECK(learner->optimizer().state().empty());
  CHECK(contains(error_of([&] { save_checkpoint("never_written.safetensors", *learner, {}, ""); }),
                 "[checkpoint] never_written.safetensors: the model is converted"));
}

TEST_CASE("a learner that is converted in a frozen phase prints what its file holds") {
  PhaseRun run;
  run.phases = {{0, all_layers(kInt4), kOn}, {2, std::nullopt, kFrozen}};
  const auto learner = phase_learner(run);
  train_some(*learner, 3);
  CHECK(summarize(learner->model())[0].weight == "int4 symmetric channel(0) (frozen)");
  learner->convert();
  CHECK(summarize(learner->model())[0].weight == "int4 symmetric channel(0)");
}
