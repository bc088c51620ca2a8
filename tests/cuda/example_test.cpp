// Examples of other forms than one class of a byte on the (emulated) device: runs have the state and metrics of the
// CPU, with batches copied ahead, with data that lie there, in recorded steps.
#include <filesystem>
#include <fstream>

#include "bitgrad/nn/layers.h"
#include "cuda/both.h"
#include "cuda/feed_support.h"
#include "data/image_dataset.h"
#include "support/paths.h"
#include "support/vector_files.h"
#include "train/batch_feed.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

RunConfig shipped(const char* name, const std::string& root, Keys keys) {
  keys.insert(keys.begin(), {"data.root=" + root, "device.threads=2"});
  return load_config(concat(source_path(), "/configs/", name, ".yaml"), keys);
}

void check_alike(const char* name, const std::string& root, const Keys& keys) {
  INFO(name);
  const TrainOutcome cpu = run_all(shipped(name, root, on("cpu", keys)));
  REQUIRE(cpu.evaluation.has_value());
  for (const char* resident : {"false", "true"})
    for (const char* graph : {"false", "true"}) {
      INFO("resident " << resident << ", graph " << graph);
      Keys more = keys;
      more.insert(more.end(), {std::string("device.resident_data=") + resident, std::string("device.graph=") + graph});
      const TrainOutcome cuda = run_all(shipped(name, root, on("cuda", more)));
      CHECK(cuda.state_hash == cpu.state_hash);
      CHECK(cuda.evaluation->metrics == cpu.evaluation->metrics);
      CHECK(cuda.evaluation->loss == cpu.evaluation->loss);
    }
}

}  // namespace

TEST_CASE("Targets of values, of several labels and by position train on a device as on the CPU", "[bits]") {
  const KeepModes keep;
  TempDir folder;
  write_vectors(folder.path(), 70, 30);
  const Keys keys = {"run.bits=strict", "train.stop=6 steps", "train.eval.every=6 steps"};
  Keys halves = keys;
  halves.push_back("batch.micro=16");
  check_alike("vectors_mlp_int8_regression", folder.path(), halves);
  check_alike("vectors_mlp_int8_labels", folder.path(), keys);
  std::filesystem::create_directories(folder.path() + "/text");
  {
    std::ofstream out(folder.path() + "/text/tinyshakespeare.txt");
    for (char c = '0'; c < '0' + 65; ++c) out << c;
    for (int i = 0; i < 12; ++i) out << "TO;BE;OR;NOT;TO;BE:LINE:" << i * i % 97;
  }
  Keys text = keys;
  text.insert(text.end(), {"schedule.warmup=1 steps", "batch.global=9", "data.train.context=5", "data.test.context=5",
                           "train.eval.batch=7"});
  check_alike("shakespeare_mlp_positions_int8", folder.path(), text);
}

TEST_CASE("Classes that are ignored change what a recorded step divides by, as on the CPU") {
  const KeepModes keep;
  set_bits_mode(BitsMode::kStrict);
  std::vector<std::string> hashes;
  for (const char* kind : {"cpu", "cuda"}) {
    const DeviceGuard guard(kind[1] == 'p' ? Device::cpu() : gpu());
    std::vector<LayerSpec> layers(2);
    layers[0].kind = "embedding";
    layers[0].attributes = {{"num", int64_t{6}}, {"dim", int64_t{4}}, {"flat", false}};
    layers[1].kind = "linear";
    layers[1].attributes = {{"out", int64_t{6}}, {"bias", true}};
    OptimizerSpec sgd;
    sgd.name = "sgd";
    Form input;
    input.sample = {3};
    input.dtype = dtypes::int32;
    input.ids = 6;
    ModelSpec spec;
    spec.input = input;
    spec.layers = layers;
    Learner learner(
        make_model(spec), find_loss("softmax_cross_entropy"), sgd, RequantPolicy{}, [](int64_t) { return 0.5f; }, 1);
    PlanSpec plan;
    plan.input = input;
    plan.train_samples = plan.eval_samples = 2;
    learner.plan(plan);
    learner.set_recorded(true);
    for (int step = 0; step < 8; ++step) {
      std::vector<double> ids, targets;
      for (int i = 0; i < 6; ++i) ids.push_back((step * 5 + i * 7) % 6), targets.push_back((step + i) % 6);
      for (int i = 0; i < step % 3; ++i) targets[static_cast<size_t>(i)] = kIgnoredClass;
      const Tensor x = Tensor::from_elements({2, 3}, dtypes::int32, ids);
      const Tensor t = Tensor::from_elements({2, 3}, dtypes::int32, targets);
      CHECK(learner.microbatch(x, t).counted == 6 - step % 3);
    }
    hashes.push_back(state_hash(learner, {}));
  }
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("Ids and classes of 16 and 32 bits are gathered on a device from what is stored") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  struct Wide final : Dataset {
    explicit Wide(StoredAs of) : form(of) {
      for (int64_t i = 0; i < 60; ++i) {
        small.push_back(static_cast<uint16_t>(i * 1009 % 50000));
        large.push_back(static_cast<int32_t>(i * 1009 % 50000));
      }
    }
    std::string name() const override { return "wide"; }
    int64_t size() const override { return 11; }
    std::vector<int64_t> sample_shape() const override { return {5}; }
    int64_t classes() const override { return 50000; }
    int64_t vocabulary() const override { return 50000; }
    TargetForm target_form() const override { return {.shape = {5}, .classes = 50000}; }
    void example(int64_t index, void* x, void* target) const override {
      std::copy_n(large.data() + 5 * index, 5, static_cast<int32_t*>(x));
      std::copy_n(large.data() + 5 * index + 1, 5, static_cast<int32_t*>(target));
    }
    StoredSamples stored() const override {
      StoredSamples s;
      const bool narrow = form == StoredAs::kUint16;
      s.codes = narrow ? static_cast<const void*>(small.data()) : large.data();
      s.labels = narrow ? static_cast<const void*>(small.data() + 1) : large.data() + 1;
      s.bytes = 60 * element_bytes(form);
      s.stride = s.target_stride = 5;
      s.form = s.target_form = form;
      return s;
    }
    StoredAs form;
    std::vector<uint16_t> small;
    std::vector<int32_t> large;
  };
  for (const StoredAs form : {StoredAs::kUint16, StoredAs::kInt32}) {
    const Wide data(form);
    const detail::ResidentData resident(data);
    Learner learner(
        make_linear(5, 2, {}), find_loss("softmax_cross_entropy"), OptimizerSpec{}, RequantPolicy{},
        [](int64_t) { return 0.1f; }, 1);
    LoaderOptions options;
    options.micro = 4;
    options.end_epoch = 2;
    Loader loader(data, options);
    detail::BatchFeed feed(learner, data, options, &resident);
    for (Batch b; loader.next(b);) {
      REQUIRE(feed.next());
      device_backend(gpu()).synchronize();
      const Tensor x = feed.x().on_host(), t = feed.target().on_host();
      CHECK(std::equal(b.tokens, b.tokens + 5 * b.size, x.as<int32_t>()));
      REQUIRE(t.shape() == Shape{b.size, 5});
      CHECK(std::equal(b.labels, b.labels + 5 * b.size, t.as<int32_t>()));
    }
  }
}

TEST_CASE("Transformed samples stay on the host, and the log reports it") {
  const KeepModes keep;
  TempDir folder;
  write_vectors(folder.path(), 70, 30);
  const Keys keys = {"run.bits=strict", "train.stop=5 steps", "data.train.transforms=[{noise: {sd: 0.1}}]"};
  const TrainOutcome cpu = run_all(shipped("vectors_mlp_int8_regression", folder.path(), on("cpu", keys)));
  CHECK(run_all(shipped("vectors_mlp_int8_regression", folder.path(), on("cuda", keys))).state_hash == cpu.state_hash);
  Keys there = keys;
  there.emplace_back("device.resident_data=true");
  CHECK(contains(error_of([&] { Trainer(shipped("vectors_mlp_int8_regression", folder.path(), on("cuda", there))); }),
                 "are changed by transforms, which run on the host. Use auto or false"));
}
