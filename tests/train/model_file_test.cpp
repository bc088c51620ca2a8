// Files of converted models.
#include <functional>

#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/one_file.h"
#include "support/temp_dir.h"
#include "train/phase_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::pair<std::string, LayerQuant>> forms() {
  return {{"learned", with_input(held(dtypes::int4, "lsq"), dtypes::int8, "lsq")},
          {"observed", with_input(held(dtypes::int8, "symmetric"), dtypes::int8, "symmetric", Granularity::tensor(),
                                  "moving_average")},
          {"offsets", held(dtypes::uint4, "minmax_offset", Granularity::groups(4))},
          {"zero points", with_input(held(dtypes::int4, "affine"), dtypes::int8, "affine", Granularity::token())},
          {"signs", with_input(held(dtypes::bint1, "binary", {}), dtypes::bint1, "binary")},
          {"thresholds", held(dtypes::ternary, "ternary_threshold")},
          {"masterless", with_master(held(dtypes::int8, "absmax"), MasterKind::kNone)},
          {"float", LayerQuant{}}};
}

std::unique_ptr<Learner> learner_of(const LayerQuant& quant) {
  PhaseRun run;
  run.phases = {{0, all_layers(quant), kOn}};
  return phase_learner(run);
}

CheckpointHeader header_of_run() {
  CheckpointHeader header;
  header.step = 3;
  header.seed = 3;
  header.config = "version: 1";
  header.counters.epoch = 2;
  return header;
}

// A trained learner that was converted and saved.
std::unique_ptr<Learner> saved(const LayerQuant& quant, const std::string& file) {
  auto learner = learner_of(quant);
  train_some(*learner, 3);
  learner->convert();
  save_model(file, learner->model(), header_of_run());
  return learner;
}

}  // namespace

TEST_CASE("a model file gives a fresh model the same codes, scales, floats and logits, bit for bit") {
  TempDir temp;
  const Tensor x = random_tensor({7, kFeatures}, dtypes::fp32, 9);
  for (const auto& [name, quant] : forms()) {
    INFO(name);
    auto trained = learner_of(quant);
    train_some(*trained, 3);
    const auto logits = bits_of(trained->predict(x));
    const auto from = saved(quant, temp.file("m"));
    CHECK(bits_of(from->predict(x)) == logits);
    const auto to = learner_of(quant);
    to->convert();
    load_model(temp.file("m"), to->model());
    CHECK(bits_of(to->predict(x)) == logits);
    CHECK(state_hash(*to, {}) != "");
    for (size_t i = 0; i < to->model().parameters().size(); ++i) {
      const Parameter &a = *from->model().parameters()[i], &b = *to->model().parameters()[i];
      CHECK(a.path() == b.path());
      CHECK(a.value().elements() == b.value().elements());
      CHECK(a.value().values() == b.value().values());
    }
    save_model(temp.file("again"), to->model(), header_of_run());
    CHECK(file_system().read(temp.file("again")) == file_system().read(temp.file("m")));
  }
}

TEST_CASE("a model file has codes without masters and moments, and the header of its run") {
  TempDir temp;
  const auto learner = saved(forms()[0].second, temp.file("m"));
  CHECK(file_kind(temp.file("m")) == SavedKind::kModel);
  const SafetensorsFile file = SafetensorsFile::read(temp.file("m"));
  CHECK(file.contains("layers.4.weight.codes"));
  CHECK(file.contains("layers.4.weight.scale"));
  CHECK(file.contains("layers.4.bias.value"));
  CHECK(file.contains("layers.4.input.step.value"));
  CHECK(file.contains("layers.1.running_mean"));
  for (const SafetensorsEntry& e : file.entries()) {
    CHECK_FALSE(contains(e.name, ".master"));
    CHECK_FALSE(contains(e.name, ".adam"));
    CHECK_FALSE(contains(e.name, "weight.step"));
  }
  const CheckpointHeader header = read_checkpoint_header(temp.file("m"));
  CHECK(header.step == 3);
  CHECK(header.seed == 3);
  CHECK(header.phase == 0);
  CHECK(header.config == "version: 1");
  CHECK(header.counters.epoch == 2);
  CHECK(header.kernel_hash == kernel_table_hash());
}

TEST_CASE("a model that still trains is not saved as one") {
  TempDir temp;
  const auto learner = learner_of(forms()[0].second);
  const std::string text = error_of([&] { save_model(temp.file("m"), learner->model(), {}); });
  CHECK(contains(text, "[save_model] parameter 'layers.0.weight' has a master"));
  CHECK_FALSE(file_system().exists(temp.file("m")));
}

TEST_CASE("a checkpoint is refused as a model and a model as a checkpoint, and the errors say what each is for") {
  TempDir temp;
  const LayerQuant quant = forms()[0].second;
  const auto learner = learner_of(quant);
  save_checkpoint(temp.file("c"), *learner, {}, "");
  CHECK(file_kind(temp.file("c")) == SavedKind::kCheckpoint);
  saved(quant, temp.file("m"));
  const auto converted = learner_of(quant);
  converted->convert();
  const auto load = [&] { load_model(temp.file("c"), converted->model()); };
  CHECK(error_code_of(load) == 3);
  CHECK(contains(error_of(load), "got masters and codes, expected a converted model. Make one with bitgrad convert"));
  const auto resume = [&] { load_checkpoint(temp.file("m"), *learner); };
  CHECK(error_code_of(resume) == 3);
  CHECK(contains(error_of(resume), "got a model, expected a checkpoint"));
  // A model in another form.
  const auto other = learner_of(forms()[2].second);
  other->convert();
  CHECK(contains(error_of([&] { load_model(temp.file("m"), other->model()); }),
                 "parameter 'layers.0.weight' is [24,5] int4, the model has"));
  // One that still has its masters.
  CHECK(error_code_of([&] { load_model(temp.file("m"), learner_of(quant)->model()); }) == 3);
}

TEST_CASE("a model file that is cut anywhere, or has a flipped bit, is one clear error") {
  TempDir temp;
  const LayerQuant quant = forms()[0].second;
  saved(quant, temp.file("m"));
  const std::vector<uint8_t> whole = file_system().read(temp.file("m"));
  const auto learner = learner_of(quant);
  learner->convert();
  OneFile file;
  const auto load = [&] { return error_code_of([&] { load_model("damaged", learner->model()); }); };
  for (size_t n = 0; n < whole.size(); n += n < 256 ? 1 : 7) {
    file.bytes.assign(whole.begin(), whole.begin() + static_cast<int64_t>(n));
    if (load() != 3) FAIL("cut to " << n << " bytes");
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    file.bytes = whole;
    file.bytes[i] ^= static_cast<uint8_t>(1u << (i * 5 % 8));
    if (load() != 3) FAIL("byte " << i << ", bit " << i * 5 % 8);
    if (i % 16 == 0 && error_code_of([&] { file_kind("damaged"); }) != 3) FAIL("kind, byte " << i);
  }
  file.bytes = whole;
  CHECK(load() == 0);
}

TEST_CASE("a model that is not finite is not saved") {
  TempDir temp;
  const auto learner = learner_of(forms()[0].second);
  learner->convert();
  learner->model().buffers()[0].tensor.as<float>()[0] = std::numeric_limits<float>::infinity();
  CHECK(error_code_of([&] { save_model(temp.file("m"), learner->model(), {}); }) == 5);
  CHECK_FALSE(file_system().exists(temp.file("m")));
}
