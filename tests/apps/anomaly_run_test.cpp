// A run of configs/mnist_autoencoder_int4.yaml: data.train has the normal class alone, and auc ranks the others.
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/config/config.h"
#include "bitgrad/run/build.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Pictures of 28 x 28: class 1 has a bright column, class 0 a bright row. Two of three are of class 0.
void write_strokes(const std::string& root, const std::string& name, uint32_t count) {
  std::vector<uint8_t> images = idx_header({count, 28, 28}), labels = idx_header({count});
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t label = i % 3 == 0 ? 1 : 0;
    const uint32_t at = 8 + i % 12;
    labels.push_back(label);
    for (uint32_t p = 0; p < 784; ++p) images.push_back((label == 1 ? p % 28 : p / 28) == at ? 255 : 0);
  }
  const auto put = [&](const std::string& file, const std::vector<uint8_t>& bytes) {
    std::ofstream(root + "/mnist/" + name + file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  };
  put("-images-idx3-ubyte.gz", images);  // plain files are recognized by their first bytes
  put("-labels-idx1-ubyte.gz", labels);
}

}  // namespace

TEST_CASE("a run with normal_class trains on that class alone, and its auc ranks all test samples") {
  const TempDir temp;
  std::filesystem::create_directories(temp.file("mnist"));
  write_strokes(temp.path(), "train", 1200);
  write_strokes(temp.path(), "t10k", 300);
  const std::string config = source_path("configs/mnist_autoencoder_int4.yaml"), root = "data.root=" + temp.path();
  const ProcessResult run = cli({"train", config, root, "batch.global=20", "--out", temp.file("run")});
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  const Json summary = Json::parse(slurp(temp.file("run") + "/summary.json"));
  CHECK(summary.at("steps") == 10 * 400 / 20);
  CHECK(summary.at("metric") == "auc");
  CHECK(summary.at("last_value").get<double>() > 0.95);
  const ProcessResult evaluated = cli({"eval", temp.file("run"), "--json", root});
  CHECK(Json::parse(evaluated.out).at("samples") == 300);

  const ProcessResult other = cli({"check", config, root, "data.test.normal_class=0"});
  CHECK(other.code == 2);
  CHECK(
      contains(other.out + other.err, "normal_class: got '0' for mnist/t10k-images-idx3-ubyte.gz, data.train has '1'"));
  const ProcessResult none = cli({"check", config, root, "data.test.normal_class=-1"});
  CHECK(none.code == 2);
  CHECK(
      contains(none.out + none.err, "normal_class: got '-1' for mnist/t10k-images-idx3-ubyte.gz, data.train has '1'"));
  for (const char* command : {"check", "train"}) {
    const ProcessResult left_out = cli({command, config, root, "~data.test.normal_class"});
    CHECK(left_out.code == 2);
    CHECK(contains(left_out.out + left_out.err, "[data] normal_class: got '-1' for mnist/t10k-images"));
    CHECK(contains(left_out.out + left_out.err, "Write the same here"));
  }

  // A held out part has anomalies as well, so that auc is defined on it.
  const ProcessResult held = cli({"train", config, root, "batch.global=20", "train.stop=2 epochs",
                                  "data.valid={fraction: 0.2}", "--out", temp.file("held")});
  INFO(held.out << held.err);
  REQUIRE(held.code == 0);
  CHECK(Json::parse(slurp(temp.file("held") + "/summary.json")).at("selected_on") == "valid");
}

TEST_CASE("data.train of a configuration has the normal class alone, data.valid and data.test all samples") {
  const TempDir temp;
  std::filesystem::create_directories(temp.file("mnist"));
  write_strokes(temp.path(), "train", 1200);
  write_strokes(temp.path(), "t10k", 300);
  const std::string path = source_path("configs/mnist_autoencoder_int4.yaml"), root = "data.root=" + temp.path();
  const RunConfig config = load_config(path, {root});
  CHECK(open_dataset(config, config.data.train)->size() == 400);
  CHECK(open_dataset(config, *config.data.test)->size() == 300);
  CHECK(open_evaluation_dataset(config)->size() == 300);

  const RunConfig split = load_config(path, {root, "data.valid={fraction: 0.25}"});
  const auto train = open_dataset(split, split.data.train), valid = open_dataset(split, *split.data.valid);
  const auto anomalies = [](const Dataset& data) {
    std::vector<float> x(static_cast<size_t>(data.features()));
    int64_t count = 0;
    for (int64_t i = 0; i < data.size(); ++i) {
      float target = -1;
      data.example(i, x.data(), &target);
      count += target == 1 ? 1 : 0;
    }
    return count;
  };
  CHECK(valid->size() == 300);
  CHECK(anomalies(*train) == 0);
  CHECK(anomalies(*valid) > 100);
  CHECK(train->size() + valid->size() - anomalies(*valid) == 400);
}
