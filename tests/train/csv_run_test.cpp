// Runs on tables: classes by name, and a regression.
#include <cmath>

#include "bitgrad/base/file.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// z = 2 a - b where c is "up", else its negative; and whether it is positive.
std::string csv_table() {
  std::string text = "a,b,c,z,sign\n";
  for (int i = 0; i < 240; ++i) {
    const double a = std::sin(i * 0.7), b = std::cos(i * 1.3);
    const bool up = i % 3 != 0;
    const double z = (2 * a - b) * (up ? 1 : -1);
    text += concat(a, ',', b, ',', up ? "up" : "down", ',', z, ',', z > 0 ? "plus" : "minus", '\n');
  }
  return text;
}

constexpr const char* kTable = R"yaml(version: 1
data:
  train: {format: csv, file: t.csv, target: z, target_is: values, ignore: sign}
  valid: {fraction: 0.2}
model: {layers: [linear: {out: 24}, relu: {}, linear: {out: 24}, relu: {}, linear: {out: 1}]}
loss: mean_squared_error
batch: {global: 24}
optim: {name: adam, lr: 0.01}
train: {stop: 40 epochs}
)yaml";

}  // namespace

TEST_CASE("a table trains a regression and a classification by its configuration alone") {
  const KeepModes keep;
  const TempDir temp;
  write_file_atomically(temp.file("t.csv"), csv_table());
  const auto run = [&](std::vector<std::string> keys) {
    keys.push_back("data.root=" + temp.path());
    return run_all(parse_config(kTable, "t.yaml", keys));
  };
  const TrainOutcome values = run({});
  CHECK(values.evaluated == "valid");
  CHECK(values.evaluation->samples == 48);
  CHECK(values.evaluation->loss < 0.1);  // the variance of z is about 2.5
  const TrainOutcome classes = run({"data.train={format: csv, file: t.csv, target: sign, ignore: z}",
                                    "loss=softmax_cross_entropy", "model.layers.4.linear.out=2"});
  CHECK(classes.evaluation->accuracy > 85);
}
