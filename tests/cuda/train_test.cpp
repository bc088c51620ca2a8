// Whole runs on the (emulated) device: in strict mode states have the hashes of the CPU, whatever is trained, and runs
// go from one device to the other in the middle.
#include <algorithm>

#include "bitgrad/nn/layers.h"
#include "bitgrad/tools/budget.h"
#include "bitgrad/tools/ptq.h"
#include "cuda/same_as_cpu.h"
#include "support/log_lines.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

using Keys = std::vector<std::string>;

// 3 epochs of 5 steps would be long on emulated threads.
constexpr const char* kFew = "train.stop=4 steps";

Keys on(const std::string& device, Keys keys = {}) {
  gpu();
  keys.insert(keys.end(), {"run.bits=strict", "device.kind=" + device});
  return keys;
}

struct Run {
  std::string name;
  const char* text;
  Keys keys;
};

constexpr const char* kFloatNet = R"yaml(version: 1
run: {name: small_float, seed: 3}
data:
  train: {format: digits, size: 50}
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
train: {stop: 4 steps}
)yaml";

// Joins, a norm at the end, learned and float inputs of products: what bf16 between layers passes through.
constexpr const char* kBf16Net = R"yaml(version: 1
run: {name: small_bf16, seed: 4}
data:
  train: {format: digits, size: 50}
  test: {format: digits, size: 20}
model:
  values: bf16
  layers:
    - linear: {out: 16}
    - batch_norm: {}
    - residual:
        body:
          - gelu: {}
          - quantize: {dtype: int4, scheme: lsq}
          - linear: {out: 16, weights: {dtype: int4, scheme: symmetric, granularity: channel}}
    - branches: {join: multiply, layers: [[{tanh: {}}], [{dropout: {p: 0.2}}]]}
    - quantize: {dtype: bint1, scheme: binary}
    - linear: {out: 10, bias: false, weights: {dtype: bint1, scheme: binary}}
    - tensor_norm: {}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.02}
train: {stop: 4 steps}
)yaml";

const std::vector<Run> kRuns = {
    {"bf16 values", kBf16Net, {}},
    {"bf16 values, fp32 network", kFloatNet, {"model.values=bf16"}},
    {"bf16 values, int8 backward",
     kFloatNet,
     {"model.values=bf16", "quant.recipe=w8a8", "quant.backward={gx: int8, gw: int8}"}},
    {"bf16 values, W1A1", kSmallTfc, {kFew, "model.values=bf16"}},
    {"bf16 values, int4, bf16 gradients", kSmallInt4, {kFew, "model.values=bf16"}},
    {"fp32", kFloatNet, {}},
    {"fp32, two microbatches, norm clip", kFloatNet, {"batch.micro=5", "optim.clip_norm=0.5"}},
    {"8-bit moments", kFloatNet, {"optim.moments=int8"}},
    {"4-bit moments", kFloatNet, {"optim.moments=int4"}},
    {"W1A1", kSmallTfc, {kFew}},
    {"int4, bf16 gradients", kSmallInt4, {kFew}},
    {"int8 backward", kFloatNet, {"quant.recipe=w8a8", "quant.backward={gx: int8, gw: int8}"}},
    {"phases",
     kFloatNet,
     {"quant.recipe=8da4w",
      "quant.phases=[{from: 0 steps, quantization: off}, {from: 2 steps}, {from: 3 steps, "
      "quantization: frozen, observers: false}]"}},
};

}  // namespace

TEST_CASE("Runs of every kind of numbers end on a device with the state of the CPU", "[bits]") {
  const KeepModes keep;
  for (const Run& run : kRuns) {
    INFO(run.name);
    const TrainOutcome cpu = run_all(small_config(on("cpu", run.keys), run.text));
    const TrainOutcome cuda = run_all(small_config(on("cuda", run.keys), run.text));
    CHECK(cuda.state_hash == cpu.state_hash);
    REQUIRE(cuda.evaluation.has_value());
    CHECK(cuda.evaluation->accuracy == cpu.evaluation->accuracy);
    CHECK(cuda.evaluation->loss == cpu.evaluation->loss);
  }
}

TEST_CASE("Shipped networks with bf16 values train to the same bits on a device as on the CPU") {
  const KeepModes keep;
  for (const char* name : {"digits_residual_w1a8", "digits_branches_int8"}) {
    INFO(name);
    std::vector<std::string> hashes;
    for (const char* device : {"cpu", "cuda"})
      hashes.push_back(run_all(load_config(concat(source_path(), "/configs/", name, ".yaml"),
                                           on(device, {"model.values=bf16", "data.train.size=200", "data.test.size=100",
                                                       "train.stop=2 steps"})))
                           .state_hash);
    CHECK(hashes[0] == hashes[1]);
  }
}

TEST_CASE("A run resumes on the other device and back to the same state as an uninterrupted run") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig cpu = small_config(on("cpu", {kFew, "checkpoint.every=1 steps"}), kSmallTfc);
  const TrainOutcome uninterrupted = run_all(cpu);
  int runs = 0;
  for (const char* first : {"cpu", "cuda"}) {
    const RunConfig config = small_config(on(first, {kFew, "checkpoint.every=1 steps"}), kSmallTfc);
    const std::string folder = create_run_folder(config, temp.file("run" + std::to_string(runs++)));
    run_part(config, folder, 2);
    LogLines lines;
    Trainer second(run_folder_config(folder, {std::string("device.kind=") + (first[1] == 'p' ? "cuda" : "cpu")}));
    second.resume(run_folder_checkpoint(folder));
    CHECK(second.run(folder).state_hash == uninterrupted.state_hash);
    CHECK_FALSE(std::any_of(lines.warnings.begin(), lines.warnings.end(),
                            [](const std::string& w) { return contains(w, "not bit for bit"); }));
  }
}

TEST_CASE("Loss and hits of microbatches are those of the CPU") {
  const KeepModes keep;
  std::vector<std::vector<double>> all;
  for (const char* device : {"cpu", "cuda"}) {
    Trainer trainer(small_config(on(device, {kFew}), kSmallInt4));
    const DeviceGuard guard(trainer.learner().device());
    CHECK(to_string(trainer.learner().device()) == (device[1] == 'p' ? "cpu" : "cuda:0"));
    std::vector<double>& seen = all.emplace_back();
    const auto data = open_dataset(trainer.config(), trainer.config().data.train);
    for (const SampleBatch& b : first_samples(*data, 30, 10, 1)) {
      const StepResult r = trainer.learner().microbatch(b.x, b.target);
      seen.insert(seen.end(), {r.loss, static_cast<double>(r.correct), r.stepped ? 1.0 : 0.0});
    }
  }
  CHECK(all[0] == all[1]);
}

TEST_CASE("NaN in a batch is an error with the CPU's text on a device, and the next batch trains") {
  const KeepModes keep;
  std::vector<std::string> errors, hashes;
  for (const char* device : {"cpu", "cuda"}) {
    Trainer trainer(small_config(on(device, {kFew}), kSmallTfc));
    Learner& learner = trainer.learner();
    const DeviceGuard guard(learner.device());
    const auto data = open_dataset(trainer.config(), trainer.config().data.train);
    const std::vector<SampleBatch> batches = first_samples(*data, 20, 10, 1);
    const Tensor bad = Tensor::full(batches[0].x.shape(), dtypes::fp32, NAN);
    errors.push_back(error_of([&] { learner.microbatch(bad, batches[0].target); }));
    CHECK(learner.usable());
    errors.push_back(error_of([&] { learner.predict(bad); }));
    learner.microbatch(batches[1].x, batches[1].target);
    hashes.push_back(state_hash(learner, {}));
  }
  CHECK(errors[0] != "");
  CHECK(errors[2] == errors[0]);
  CHECK(errors[1] != "");
  CHECK(errors[3] == errors[1]);
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("Reports about codes are those of the CPU") {
  const KeepModes keep;
  std::vector<std::string> reports;
  for (const char* device : {"cpu", "cuda"}) {
    std::string& report = reports.emplace_back();
    TrainHooks hooks;
    hooks.on_quant = [&](const QuantEvent& e) { report += to_json(e) + '\n'; };
    Trainer(small_config(on(device, {kFew, "log.quantization=2 steps"}), kSmallInt4)).run("", hooks);
  }
  CHECK(reports[0] != "");
  CHECK(reports[1] == reports[0]);
}

TEST_CASE("A model is quantized after training, converted and its layers are measured on a device as on the CPU") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig trained = small_config(on("cpu"), kFloatNet);
  const std::string folder = create_run_folder(trained, temp.file("floats"));
  run_all(trained, folder);
  std::vector<std::string> models, tables;
  for (const char* device : {"cpu", "cuda"}) {
    const RunConfig config = small_config(on(device, {"quant.recipe=8da4w"}), kFloatNet);
    const DeviceGuard guard(device_of(config));
    const auto data = open_dataset(config, config.data.train);
    const std::vector<SampleBatch> samples = first_samples(*data, 20, 10, 1);
    const auto learner = load_floats(checkpoint_of(folder), config, *data);
    const WeightChoice choices[] = {{"int8wo"}, {"int4wo"}};
    tables.push_back(sensitivity_json(measure_sensitivity(*learner, samples, choices, samples)));
    quantize_after_training(*learner, quant_phases(config, 5).front().spec.value(), samples, samples);
    const std::string path = temp.file(std::string(device) + ".safetensors");
    CheckpointHeader header;
    header.kernel_hash = "of no kernels";  // those of the two devices differ
    save_model(path, learner->model(), header);
    const DeviceGuard cpu(Device::cpu());
    models.push_back(text_of(path));
  }
  CHECK(tables[0] == tables[1]);
  CHECK(models[0] == models[1]);
}

TEST_CASE("Models and learners of two devices are kept apart") {
  if (device_count(gpu().kind) < 2) {
    WARN("skipped: there is one device");
    return;
  }
  const KeepModes keep;
  const RunConfig config = small_config(on("cpu"), kFloatNet);
  const auto data = open_dataset(config, config.data.train);
  const DeviceGuard second(gpu(1));
  const auto learner = build_learner(config, *data);
  CHECK(learner->device() == Device::cuda(1));
  CHECK(learner->model().parameters().front()->value().device() == Device::cuda(1));
  const std::vector<SampleBatch> samples = first_samples(*data, 10, 10, 1);
  {
    const DeviceGuard first(gpu(0));  // of no matter to a learner
    learner->microbatch(samples[0].x, samples[0].target);
  }
  std::shared_ptr<Module> model;
  {
    const DeviceGuard cpu(Device::cpu());
    model = make_linear(4, 3, {});
    StepState state;
    model->initialize(kModelRoot, state);  // its memory lies here
  }
  CHECK(contains(error_of([&] {
                   const Learner misplaced(
                       model, find_loss("squared_hinge"), OptimizerSpec{}, RequantPolicy{},
                       [](int64_t) { return 0.1f; }, 1);
                 }),
                 "is on cpu, the current device is cuda:1"));
}

TEST_CASE("A device that is absent is an error of a device, before anything is written") {
  const KeepModes keep;
  try {
    Trainer(small_config(on("cuda", {"device.index=200"}), kFloatNet));
    FAIL("built");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::kDevice);
    CHECK(contains(e.what(), "cuda:200"));
  }
}
