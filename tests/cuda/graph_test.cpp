// Recorded steps on the (emulated) device: the same state as work done kernel by kernel, for every form of microbatch.
#include "bitgrad/tools/ptq.h"
#include "cuda/same_as_cpu.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

using Keys = std::vector<std::string>;

struct Run {
  std::string name;
  const char* text;
  Keys keys;
};

constexpr const char* kNet = R"yaml(version: 1
run: {name: small_graph, seed: 5}
data:
  train: {format: digits, size: 44}
  test: {format: digits, size: 20}
model:
  layers:
    - linear: {out: 12, bias: false}
    - batch_norm: {}
    - relu: {}
    - dropout: {p: 0.1}
    - linear: {out: 10}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.02}
schedule: {name: cosine, warmup: 2 steps}
train: {stop: 9 steps}
)yaml";

// Ragged last batches (44 = 4 * 10 + 4), windows of several microbatches, codes that follow every second window,
// numbers that change from step to step: rates, draws, corrections of Adam, the norm's factor.
const std::vector<Run> kRuns = {
    {"fp32", kNet, {}},
    {"rates of their own", kNet, {"quant.weights={dtype: int8, scheme: absmax, lr_factor: 0.3}"}},
    {"two microbatches, norm clip", kNet, {"batch.micro=5", "optim.clip_norm=0.5"}},
    {"norm clip, 8-bit moments", kNet, {"optim.moments=int8", "optim.clip_norm=0.5"}},
    {"bf16 masters, 8-bit moments",
     kNet,
     {"optim.moments=int8", "quant.weights={dtype: int8, scheme: absmax, granularity: channel, master: bf16}"}},
    {"codes every second step, stochastic",
     kNet,
     {"quant.weights={dtype: int4, scheme: symmetric, granularity: channel, rounding: stochastic, grad: bf16}",
      "batch.micro=5", "quant.requantize_every=4"}},
    {"sums in bf16 by draws",
     kNet,
     {"quant.weights={dtype: int4, scheme: symmetric, granularity: channel, grad: bf16}", "batch.micro=1",
      "model.layers.1=layer_norm: {}"}},
    {"W1A1", kSmallTfc, {"train.stop=9 steps"}},
    {"int4, momentum", kSmallInt4, {"train.stop=9 steps"}},
    {"LSQ", kNet, {"quant.weights={dtype: int4, scheme: lsq}"}},
    {"Muon, aux, numbers over time",
     kNet,
     {"optim={name: muon, lr: 0.02, weight_decay: 0.1, clip_norm: 0.5, decay_schedule: {name: cosine}, "
      "momentum_schedule: {warmup: 4 steps, warmup_from: 0.9}, aux: {name: lion, lr: 0.001}}"}},
    {"NorMuon, codes and bf16 gradients",
     kNet,
     {"optim={name: normuon, lr: 0.02, moments: int8, ns_coefficients: polar_express}",
      "quant.weights={dtype: int4, scheme: symmetric, granularity: channel, grad: bf16}"}},
    {"Adafactor", kNet, {"optim={name: adafactor, lr: 0.01, weight_decay: 0.1}"}},
    {"int8 backward", kNet, {"quant.recipe=w8a8", "quant.backward={gx: int8, gw: int8}"}},
    {"observed ranges and phases",
     kNet,
     {"quant.recipe=8da4w", "train.stop=12 steps",
      "quant.phases=[{from: 0 steps, quantization: off}, {from: 4 steps}, {from: 8 steps, quantization: frozen, "
      "observers: false}]"}},
};

Keys keys(const char* device, bool graph, const Keys& more) {
  gpu();
  Keys all = more;
  all.insert(all.end(), {"run.bits=strict", std::string("device.kind=") + device,
                         std::string("device.graph=") + (graph ? "true" : "false")});
  return all;
}

std::string hash_of(Trainer& trainer) {
  TempDir temp;
  const std::string folder = create_run_folder(trainer.config(), temp.file("run"));
  return trainer.run(folder).state_hash;
}

}  // namespace

TEST_CASE("Recorded steps end with the state of steps done one by one", "[bits]") {
  const KeepModes keep;
  for (const Run& run : kRuns) {
    INFO(run.name);
    Trainer cpu(small_config(keys("cpu", true, run.keys), run.text));
    Trainer plain(small_config(keys("cuda", false, run.keys), run.text));
    Trainer recorded(small_config(keys("cuda", true, run.keys), run.text));
    const std::string expected = hash_of(cpu);
    CHECK(hash_of(plain) == expected);
    CHECK(plain.learner().recorded_launches() == 0);
    CHECK(hash_of(recorded) == expected);
    CHECK(recorded.learner().not_recorded().empty());
    CHECK(recorded.learner().recorded_launches() > 4);
  }
}

TEST_CASE("A rule that changes from step to step is not recorded, and the run reports the reason") {
  const KeepModes keep;
  LogLines lines;
  const Keys tanh = {"quant.weights={dtype: bint1, scheme: binary, ste: tanh}"};
  Trainer recorded(small_config(keys("cuda", true, tanh), kNet));
  Trainer cpu(small_config(keys("cpu", true, tanh), kNet));
  CHECK(hash_of(recorded) == hash_of(cpu));
  CHECK(recorded.learner().recorded_launches() == 0);
  CHECK(contains(recorded.learner().not_recorded(), "changes from step to step"));
}

TEST_CASE("A network of integers is recorded until its ranges are fixed, and has the CPU's state in both phases") {
  const KeepModes keep;
  LogLines lines;
  const Keys integers = {"quant.recipe=int8", "model.layers.3={relu: {}}",
                         "quant.phases=[{from: 0 steps}, {from: 5 steps, observers: false, norm_statistics: false}]"};
  Trainer recorded(small_config(keys("cuda", true, integers), kNet));
  Trainer cpu(small_config(keys("cpu", true, integers), kNet));
  CHECK(hash_of(recorded) == hash_of(cpu));
  CHECK(recorded.learner().recorded_launches() > 0);
  CHECK(contains(recorded.learner().not_recorded(), "the host makes for each microbatch"));
  const auto data = open_dataset(cpu.config(), cpu.config().data.train);
  const Tensor x = first_samples(*data, 20, 20, 1)[0].x;
  const auto scores = [&](Learner& learner) {
    return learner.predict(x.to_device(learner.device(), MemoryKind::kBatch)).elements();
  };
  const std::vector<double> before = scores(cpu.learner());
  CHECK(scores(recorded.learner()) == before);
  recorded.learner().convert();
  CHECK(scores(recorded.learner()) == before);
}

TEST_CASE("A network of integers whose inputs have real offsets is refused on a device in the words of the CPU") {
  const KeepModes keep;
  const auto refused = [](const char* kind) {
    const Keys offsets = {
        "quant.rules=[{layers: \"*\", compute: integer, weights: {dtype: int8, scheme: absmax}, "
        "activations: {dtype: int8, scheme: minmax_offset, granularity: tensor, "
        "observer: {name: moving_average}}}]",
        "model.layers.3={relu: {}}"};
    return error_of([&] { run_all(small_config(keys(kind, false, offsets), kNet)); });
  };
  CHECK(contains(refused("cpu"), "real offsets"));
  CHECK(refused("cuda") == refused("cpu"));
}

TEST_CASE("A run goes on in a later phase, whose learned parts are not those of the phase before") {
  const KeepModes keep;
  TempDir temp;
  const Keys phases = {"quant.phases=[{from: 0 steps, recipe: w4a4}, {from: 3 steps, recipe: w2a2}]",
                       "train.stop=9 steps", "checkpoint.every=1 steps"};
  const std::string expected = run_all(small_config(keys("cpu", true, phases), kNet)).state_hash;
  const RunConfig config = small_config(keys("cuda", true, phases), kNet);
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 6);
  CHECK(resume_run(folder).state_hash == expected);
}

TEST_CASE("A microbatch without a label for each sample is an error in every form, and the next one trains") {
  const KeepModes keep;
  std::vector<std::string> hashes;
  for (const bool graph : {false, true}) {
    Trainer trainer(small_config(keys("cuda", graph, {}), kNet));
    Learner& learner = trainer.learner();
    const DeviceGuard guard(learner.device());
    const auto data = open_dataset(trainer.config(), trainer.config().data.train);
    for (const SampleBatch& b : first_samples(*data, 40, 10, 1)) {
      const Tensor host = b.target.on_host();
      const std::span<const int32_t> labels(host.as<int32_t>(), static_cast<size_t>(host.numel()));
      CHECK(contains(error_of([&] { learner.microbatch(b.x, labels.first(9)); }), "labels"));
      learner.microbatch(b.x, labels);
    }
    CHECK((learner.recorded_launches() > 0) == graph);
    hashes.push_back(state_hash(learner, {}));
  }
  CHECK(hashes[0] == hashes[1]);
}

namespace {

struct Refitted {
  std::string hash;
  std::vector<double> steps;
  std::vector<std::string> warnings;
  int64_t launches = 0;
  std::string why_not;
};

// 68 steps at a rate that moves nothing, with all learned steps and clips set to 2^-20 before the 11th, and to 2^-19
// before the 61st.
Refitted refitted_run(const char* device, bool graph, Keys more) {
  const LogLines lines;
  more.push_back("optim.lr=1e-7");
  Trainer trainer(small_config(keys(device, graph, more), kNet));
  Learner& learner = trainer.learner();
  const DeviceGuard guard(learner.device());
  const auto data = open_dataset(trainer.config(), trainer.config().data.train);
  const std::vector<SampleBatch> batches = first_samples(*data, 40, 10, 1);
  Refitted out;
  const auto steps = [&](const std::function<void(Tensor)>& use) {
    for (Parameter* p : learner.model().parameters())
      if (p->path().ends_with(".step") || p->path().ends_with(".clip")) use(p->value());
  };
  for (size_t step = 0; step < 68; ++step) {
    if (step == 10 || step == 60)
      steps(
          [&](const Tensor& t) { t.copy_from(Tensor::full(t.shape(), dtypes::fp32, step == 10 ? 0x1p-20 : 0x1p-19)); });
    if (step == 12 || step == 63 || step == 66)  // the lowest, or the largest
      steps([&](const Tensor& t) {
        const std::vector<double> all = t.elements();
        out.steps.push_back(
            *(step == 12 ? std::min_element(all.begin(), all.end()) : std::max_element(all.begin(), all.end())));
      });
    learner.microbatch(batches[step % 4].x, batches[step % 4].target);
  }
  learner.train_state().check_usable();
  out.hash = state_hash(learner, {});
  out.launches = learner.recorded_launches();
  out.why_not = learner.not_recorded();
  for (const std::string& warning : lines.warnings)
    if (contains(warning, "were fitted again")) out.warnings.push_back(warning);
  return out;
}

}  // namespace

TEST_CASE("Learned steps without signal are fitted again in recorded steps too, with the CPU's state and warnings",
          "[bits]") {
  const KeepModes keep;
  for (const char* activations :
       {"{dtype: int4, scheme: lsq}", "{dtype: uint4, scheme: lsq_plus}", "{dtype: uint4, scheme: pact}"}) {
    INFO(activations);
    const Keys more = {"model.layers.2=hardtanh: {}", "model.layers.3=quantize: {}",
                       "quant.weights={dtype: int4, scheme: lsq, granularity: channel}",
                       concat("quant.activations=", activations)};
    const Refitted cpu = refitted_run("cpu", false, more);
    REQUIRE(cpu.steps.size() == 9);
    for (size_t i = 0; i < 9; ++i) {  // three tensors after the 12th step, the 63rd, and the 66th
      INFO(i);
      CHECK((i / 3 == 1 ? cpu.steps[i] < 1e-5 : cpu.steps[i] > 1e-3));
    }
    CHECK(cpu.warnings.size() == 3);
    for (const bool graph : {false, true}) {
      const Refitted device = refitted_run("cuda", graph, more);
      CHECK(device.hash == cpu.hash);
      CHECK(device.steps == cpu.steps);
      CHECK(device.warnings == cpu.warnings);
      INFO(device.why_not);
      CHECK((device.launches > 60) == graph);
    }
  }
}
