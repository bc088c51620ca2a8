// Models that predict from their files alone.
#include "bitgrad/infer/predictor.h"

#include <cmath>
#include <thread>

#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/model_record.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/npy_bytes.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string trained(const TempDir& temp, const std::vector<std::string>& overrides = {}) {
  const KeepModes keep;
  const RunConfig config = parse_config(kSmallTfc, "small.yaml", overrides);
  std::string folder = create_run_folder(config, temp.file("run"));
  Trainer(config).run(folder);
  return folder;
}

// Bytes as the samples of the data set were stored.
std::vector<uint8_t> pixels_of(const Dataset& data, float a, float b) {
  std::vector<uint8_t> out;
  std::vector<float> x(static_cast<size_t>(data.features()));
  int32_t label = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    data.sample(i, x.data(), &label);
    for (const float v : x) out.push_back(static_cast<uint8_t>(std::lround((v - b) / a * 255.0f)));
  }
  return out;
}

void write(const std::string& path, const std::vector<uint8_t>& bytes) {
  write_file_atomically(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

TEST_CASE("a run folder, its checkpoint and its converted file predict what the learner of the run predicts") {
  const TempDir temp;
  const std::string run = trained(temp);
  const RunConfig config = run_folder_config(run);
  const auto data = open_dataset(config, *config.data.test);
  const auto learner = load_evaluator(config, *data, run + "/last.safetensors");
  Tensor x = Tensor::empty({data->size(), 28, 28}, dtypes::fp32, MemoryKind::kBatch, Device::cpu());
  int32_t label = 0;
  for (int64_t i = 0; i < data->size(); ++i) data->sample(i, x.as<float>() + i * 784, &label);
  std::vector<float> expected;
  for (int64_t i = 0; i < data->size(); i += 10)
    for (const float y : learner->predict(x.row_slice(i, i + 10).reshape({10, 784})).to_vector()) expected.push_back(y);
  learner->convert();
  save_model(temp.file("model"), learner->model(), read_checkpoint_header(run + "/last.safetensors"));
  const std::vector<uint8_t> pixels = pixels_of(*data, 2.0f, -1.0f);
  for (const std::string& path : {run, run + "/last.safetensors", temp.file("model")}) {
    INFO(path);
    const auto model = open_model(path);
    CHECK(model->input().sample == Shape{784});
    CHECK(model->input().dtype == dtypes::fp32);
    CHECK(model->output().task == PredictionTask::kClasses);
    CHECK(model->output().sample == Shape{10});
    CHECK_FALSE(model->output().probabilities);  // a squared hinge has margins
    CHECK(model->predict(x).to_vector() == expected);
    CHECK(model->predict(x.reshape({30, 784})).to_vector() == expected);
    // Bytes are normalized as the run did, by the configuration in the file.
    const SampleView view{"pixels", StoredAs::kUint8, {28, 28}, data->size(), pixels.data()};
    const Tensor y = model->predict(view);
    CHECK(y.shape() == Shape{30, 10});
    CHECK(y.to_vector() == expected);
  }
}

TEST_CASE("unsupported inputs of a model are named") {
  const TempDir temp;
  const auto model = open_model(trained(temp, {"train.stop=1 steps"}));
  const std::vector<uint8_t> pixels(784, 1);
  const std::vector<int32_t> ids(784, 1);
  const auto of = [&](const SampleView& view) { return error_of([&] { model->predict(view); }); };
  CHECK(of({"a.npy", StoredAs::kUint8, {28, 27}, 1, pixels.data()}) ==
        "[predict] a.npy: got samples of [28,27], the model expects [784]. The first axis is that of the samples.");
  CHECK(of({"a.npy", StoredAs::kInt32, {784}, 1, ids.data()}) ==
        "[predict] a.npy: got integers, the model expects values: bytes (uint8) or fp32");
  const Tensor wrong = Tensor::zeros({2, 784}, dtypes::bf16);
  CHECK(contains(error_of([&] { model->predict(wrong); }), "bf16, the model expects fp32"));
  Tensor bad = Tensor::zeros({1, 784}, dtypes::fp32);
  bad.as<float>()[5] = std::nanf("");
  CHECK(error_code_of([&] { model->predict(bad); }) == static_cast<int>(ErrorCode::kNonFinite));
  CHECK(model->predict(Tensor::zeros({1, 784}, dtypes::fp32)).numel() == 10);  // still of use
}

TEST_CASE("files of others, damaged files and folders without a run are refused with their names") {
  const TempDir temp;
  write(temp.file("a.gguf"), {1, 2, 3});
  CHECK(contains(error_of([&] { open_model(temp.file("a.gguf")); }), "bitgrad import makes a model file"));
  write(temp.file("a.safetensors"), {1, 2, 3});
  const std::string damaged = error_of([&] { open_model(temp.file("a.safetensors")); });
  CHECK(contains(damaged, temp.file("a.safetensors")));
  CHECK(error_code_of([&] { open_model(temp.file("")); }) == static_cast<int>(ErrorCode::kData));
  const std::string run = trained(temp, {"train.stop=1 steps"});
  std::vector<uint8_t> bytes = read_file(run + "/last.safetensors", int64_t{1} << 30);
  bytes.resize(bytes.size() - 100);
  write(temp.file("cut.safetensors"), bytes);
  CHECK(error_code_of([&] { open_model(temp.file("cut.safetensors")); }) == static_cast<int>(ErrorCode::kData));
}

TEST_CASE("scores of a softmax are probabilities, and equal ones come in the order of their classes") {
  const TempDir temp;
  const auto model = open_model(trained(temp, {"loss=softmax_cross_entropy", "train.stop=1 steps"}));
  REQUIRE(model->output().probabilities);
  const std::vector<float> outputs{1.0f, 3.0f, 3.0f, -50.0f};
  const std::vector<double> p = model->scores(outputs);
  const double sum = std::exp(-2.0) + 2.0 + std::exp(-53.0);
  CHECK(p[0] == Approx(std::exp(-2.0) / sum).epsilon(1e-14));
  CHECK(p[3] == Approx(std::exp(-53.0) / sum).epsilon(1e-14));
  const std::vector<Ranked> top = model->top(outputs, 9);
  REQUIRE(top.size() == 4);
  CHECK(top[0].index == 1);
  CHECK(top[1].index == 2);
  CHECK(top[2].index == 0);
  CHECK(top[0].score == Approx(1.0 / sum).epsilon(1e-14));
}

TEST_CASE("a model predicts the same from several threads") {
  const TempDir temp;
  const auto model = open_model(trained(temp, {"train.stop=1 steps"}));
  std::vector<Tensor> inputs;
  std::vector<std::vector<float>> expected;
  for (uint64_t i = 0; i < 3; ++i) {
    inputs.push_back(random_tensor({3, 784}, dtypes::fp32, i));
    expected.push_back(model->predict(inputs.back()).to_vector());
  }
  std::vector<int> equal(3, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) equal[t] += model->predict(inputs[t]).to_vector() == expected[t] ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == std::vector<int>{20, 20, 20});
}
