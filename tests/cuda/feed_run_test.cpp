// Batches on their way to the (emulated) device: copied during the step before, or gathered from a data set that lies
// there. Either way a run sees the numbers that it sees on the CPU.
#include <algorithm>
#include <array>

#include "cuda/feed_support.h"
#include "support/log_lines.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Keys fed(const char* resident, bool graph, Keys keys = {}) {
  keys.insert(keys.end(),
              {std::string("device.resident_data=") + resident, concat("device.graph=", graph ? "true" : "false")});
  return on("cuda", std::move(keys));
}

bool any_of(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return contains(line, part); });
}

// Says that it is stored, in more bytes than any device has.
class Huge final : public Dataset {
 public:
  std::string name() const override { return "huge"; }
  int64_t size() const override { return 30; }
  std::vector<int64_t> sample_shape() const override { return {3}; }
  int64_t classes() const override { return 3; }
  void sample(int64_t, float* x, int32_t* label) const override {
    std::fill_n(x, 3, 0.5f);
    *label = 0;
  }
  StoredSamples stored() const override {
    static const std::array<uint8_t, 256> codes{};
    static const std::array<float, 256> numbers{};
    return {codes.data(), int64_t{1} << 50, 3, numbers.data(), codes.data()};
  }
};

void register_formats() {
  static const bool once = [] {
    register_dataset({"brittle", {}, {}, "", [](const DatasetSpec&) { return std::make_unique<Brittle>(); }});
    register_dataset({"huge", {}, {}, "", [](const DatasetSpec&) { return std::make_unique<Huge>(); }});
    return true;
  }();
  static_cast<void>(once);
}

constexpr const char* kOwnFormat = R"yaml(version: 1
run: {name: own_format, seed: 5}
data: {train: {format: brittle}}
model: {layers: [{linear: {out: 3}}]}
batch: {global: 4, micro: 4}
optim: {name: sgd, lr: 0.02}
train: {stop: 3 epochs}
)yaml";

RunConfig own_format(const char* format, Keys keys) {
  register_formats();
  keys.insert(keys.begin(), concat("data.train.format=", format));
  return small_config(keys, kOwnFormat);
}

}  // namespace

TEST_CASE("Runs have one state, on the CPU, with batches copied ahead, and with data on the device") {
  const KeepModes keep;
  const TextFile text;
  struct Run {
    const char* name;
    const char* net;
    Keys keys;
  };
  const std::vector<Run> runs = {{"images", kNet, {}},
                                 {"several microbatches a window", kNet, {"batch.micro=5"}},
                                 {"data smaller than a batch", kNet, {"data.train.size=7", "data.test.size=3"}},
                                 {"one sample", kNet, {"data.train.size=1", "train.stop=4 steps"}},
                                 {"text", kText, {text.root()}}};
  for (const Run& run : runs) {
    INFO(run.name);
    const TrainOutcome cpu = run_all(small_config(on("cpu", run.keys), run.net));
    REQUIRE(cpu.evaluation.has_value());
    for (const char* resident : {"false", "true"})
      for (const bool graph : {false, true}) {
        INFO("resident " << resident << ", graph " << graph);
        const TrainOutcome cuda = run_all(small_config(fed(resident, graph, run.keys), run.net));
        CHECK(cuda.state_hash == cpu.state_hash);
        CHECK(cuda.evaluation->loss == cpu.evaluation->loss);
        CHECK(cuda.evaluation->accuracy == cpu.evaluation->accuracy);
        CHECK(cuda.counters.epoch == cpu.counters.epoch);
        CHECK(cuda.counters.position == cpu.counters.position);
      }
  }
}

TEST_CASE("A stopped run resumes without a batch lost or used twice, for any location of its data") {
  const KeepModes keep;
  TempDir temp;
  const Keys keys = {"batch.micro=5"};
  const TrainOutcome uninterrupted = run_all(small_config(on("cpu", keys), kNet));
  int runs = 0;
  for (const char* first : {"false", "true"})
    for (const int64_t microbatches : {1, 8, 9}) {
      INFO("resident " << first << ", stopped after " << microbatches);
      const RunConfig config = small_config(fed(first, true, keys), kNet);
      const std::string folder = create_run_folder(config, temp.file("run" + std::to_string(runs++)));
      const TrainOutcome part = run_part(config, folder, microbatches);
      CHECK(part.optimizer_steps == (microbatches + 1) / 2);
      const std::string second = first[0] == 'f' ? "true" : "false";
      LogLines lines;
      Trainer trainer(run_folder_config(folder, {"device.resident_data=" + second}));
      trainer.resume(run_folder_checkpoint(folder));
      CHECK(trainer.run(folder).state_hash == uninterrupted.state_hash);
      CHECK(lines.warnings.empty());
    }
}

TEST_CASE("One trainer that runs, stops and runs again uses every batch once") {
  const KeepModes keep;
  const TrainOutcome uninterrupted = run_all(small_config(on("cpu"), kNet));
  for (const char* resident : {"false", "true"}) {
    Trainer trainer(small_config(fed(resident, true), kNet));
    int64_t polls = 0;
    TrainHooks hooks;
    hooks.stop_requested = [&] { return ++polls == 7 ? StopRequest::kInterrupt : StopRequest::kNone; };
    CHECK(trainer.run("", hooks).stopped == StopRequest::kInterrupt);
    CHECK(trainer.run("").state_hash == uninterrupted.state_hash);
  }
}

TEST_CASE("What a data set throws comes at the step that needs the batch, as on the CPU") {
  const KeepModes keep;
  const struct { int64_t bad, odd; } cases[] = {{0, -1}, {17, -1}, {-1, 17}, {29, -1}};
  for (const auto& c : cases) {
    std::vector<std::string> errors, states;
    std::vector<int64_t> steps;
    for (const Keys& keys : {on("cpu"), fed("auto", false), fed("false", true)}) {
      Brittle::bad = c.bad;
      Brittle::odd = c.odd;
      Trainer trainer(own_format("brittle", keys));
      int64_t& ticks = steps.emplace_back();
      TrainHooks hooks;
      hooks.on_tick = [&](const TrainEvent&) { ++ticks; };
      LogLines quiet;
      try {
        trainer.run("", hooks);
        errors.emplace_back();
      } catch (const std::exception& e) {
        errors.emplace_back(e.what());
      }
      states.push_back(state_hash(trainer.learner(), trainer.counters()));
    }
    Brittle::bad = Brittle::odd = -1;
    CHECK(errors[0] != "");
    CHECK(errors[1] == errors[0]);
    CHECK(errors[2] == errors[0]);
    CHECK(steps[1] == steps[0]);
    CHECK(steps[2] == steps[0]);
    CHECK(states[1] == states[0]);
    CHECK(states[2] == states[0]);
  }
}

TEST_CASE("The account shows what is on the device, the log shows where data is and why") {
  const KeepModes keep;
  const auto dataset_bytes = [](const Keys& keys) {
    const Trainer trainer(small_config(keys, kNet));
    return memory_now()[MemoryKind::kDataset];
  };
  const int64_t on_host = dataset_bytes(on("cpu"));
  CHECK(dataset_bytes(fed("false", true)) == on_host);
  CHECK(dataset_bytes(fed("true", true)) == on_host + (44 + 23) * 784 + 2 * 256 * 4);
  CHECK(dataset_bytes(fed("auto", true)) == dataset_bytes(fed("true", true)));
  CHECK(memory_now()[MemoryKind::kDataset] == 0);

  const auto log_of = [](const RunConfig& config) {
    LogLines lines;
    run_all(config);
    return lines.lines;
  };
  const Keys one = {"train.stop=1 steps"};
  const std::vector<std::string> there = log_of(small_config(fed("auto", true, one), kNet));
  CHECK(any_of(there, "data.train (digits (train)): resident on cuda:0: 35520 bytes of the "));
  CHECK(any_of(there, "data.test (digits (test)): resident on cuda:0: 19056 bytes of the "));
  const std::vector<std::string> copied = log_of(small_config(fed("false", true, one), kNet));
  CHECK(any_of(copied,
               "data.train (digits (train)): batches are copied to cuda:0 during the step before: "
               "device.resident_data is false"));
  const std::vector<std::string> host = log_of(small_config(on("cpu", {"device.resident_data=true", one[0]}), kNet));
  CHECK(any_of(host, "data.train: device.resident_data: true is for devices other than the CPU"));
  CHECK_FALSE(any_of(log_of(small_config(on("cpu", one), kNet)), "resident"));
  CHECK(any_of(log_of(own_format("brittle", fed("auto", true, one))), "does not report how it is stored"));
  CHECK(any_of(log_of(own_format("huge", fed("auto", true, one))),
               "batches are copied to cuda:0 during the step before: its 1125899906843648 bytes are more than a "
               "quarter of the "));
}

TEST_CASE("Data that must be on the device and cannot is an error with the reason") {
  const KeepModes keep;
  try {
    Trainer(own_format("huge", fed("true", true)));
    FAIL("built");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::kMemory);
    CHECK(contains(e.what(), "device.resident_data"));
    CHECK(contains(e.what(), "data.train (huge) needs 1125899906843648 bytes"));
    CHECK(contains(e.what(), "are free on cuda:0. Use auto or false"));
  }
  CHECK(contains(error_of([] { Trainer(own_format("brittle", fed("true", true))); }),
                 "data.train (brittle) does not report how it is stored"));
}
