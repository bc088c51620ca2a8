// Small networks of images: every kind of layer that looks at pixels, trained, resumed, read back and converted.
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/config/config.h"
#include "bitgrad/tools/ptq.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string net(const std::string& model, const std::string& weights = "{dtype: bint1, scheme: binary}",
                const std::string& activations = "{dtype: bint1, scheme: binary}") {
  return "version: 1\nrun: {bits: strict, seed: 3}\ndata:\n  train: {format: digits, size: 40}\n  test: {format: "
         "digits, size: 20}\n" +
         model + "quant:\n  weights: " + weights + "\n  activations: " + activations +
         "\nbatch: {global: 20, micro: 10}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\ncheckpoint: {every: "
         "2 "
         "steps}\n";
}

// Binary, with the pool on signs, and with integers in front of a norm.
const std::string kBinary = net(R"yaml(model:
  layers:
    - conv2d: {out: 12, kernel: 3, stride: 2, padding: 1, bias: false}
    - batch_norm: {}
    - quantize: {}
    - max_pool: {size: 2}
    - conv2d: {out: 10, kernel: 3, padding: [1, 0, 1, 0], bias: false, compute: integer_out}
    - batch_norm: {}
    - quantize: {}
    - flatten: {}
    - linear: {out: 16, bias: false, compute: integer_out}
    - batch_norm: {}
    - quantize: {}
    - linear: {out: 10, bias: false}
    - batch_norm: {}
)yaml");
// A residual net with every other kind.
const std::string kResidual = net(R"yaml(model:
  layers:
    - conv2d: {out: 6, kernel: 3, stride: 2, padding: same, bias: false}
    - batch_norm: {}
    - prelu: {}
    - residual:
        body:
          - shift: {}
          - quantize: {}
          - conv2d: {out: 9, kernel: 3, stride: 2, padding: 1, bias: false}
          - batch_norm: {}
        shortcut:
          - shortcut_a: {out: 9, stride: 2}
    - prelu: {init: 0.1}
    - avg_pool: {size: 3, stride: 2, padding: 1}
    - max_pool: {size: 2, stride: 1}
    - global_avg_pool: {}
    - linear: {out: 10}
)yaml");
// Codes of several bits from gray bytes on; its pool compares codes.
const std::string kFourBits = net(R"yaml(model:
  layers:
    - unsqueeze: {}
    - quantize: {dtype: uint8, scheme: fixed, scale: 0.00390625}
    - conv2d: {out: 5, kernel: 3, bias: false}
    - relu: {}
    - quantize: {}
    - max_pool: {size: 3, stride: 2, padding: 1}
    - conv2d: {out: 7, kernel: 3, stride: 2, bias: false}
    - batch_norm: {}
    - relu: {}
    - quantize: {}
    - flatten: {}
    - linear: {out: 10}
)yaml",
                                  "{dtype: int4, scheme: absmax}", "{dtype: uint4, scheme: affine}");

}  // namespace

TEST_CASE(
    "networks of images train, resume to one hash with any number of threads, and are evaluated from their file") {
  const KeepModes keep;
  for (const std::string& text : {kBinary, kResidual, kFourBits}) {
    for (const char* const values : {"fp32", "bf16"}) {
      TempDir temp;
      const RunConfig config = parse_config(text, "images.yaml", {concat("model.values=", values)});
      INFO(to_yaml(config));
      set_num_threads(1);
      const std::string full = create_run_folder(config, temp.file("whole"));
      const TrainOutcome outcome = run_all(config, full);
      REQUIRE(outcome.evaluation.has_value());
      const std::string file = full + "/last.safetensors";
      const RunConfig read = parse_config(read_checkpoint_header(file).config, file);
      const auto data = open_dataset(read, *read.data.test);
      CHECK(evaluate(*load_evaluator(read, *data, file), *data, 10).loss == outcome.evaluation->loss);
      set_num_threads(3);
      RunConfig half = config;
      half.train.stop = {2, Quantity::Unit::kSteps};
      const std::string part = create_run_folder(half, temp.file("part"));
      run_all(half, part);
      Trainer trainer(config);
      trainer.resume(part + "/last.safetensors");
      CHECK(trainer.run("").state_hash == outcome.state_hash);
    }
  }
}

TEST_CASE("a trained network of images is converted, saved and opened, and predicts the same bits") {
  const KeepModes keep;
  for (const std::string& text : {kBinary, kResidual, kFourBits}) {
    TempDir temp;
    const RunConfig config = parse_config(text, "images.yaml", {});
    INFO(to_yaml(config));
    const std::string folder = create_run_folder(config, temp.file("run"));
    Trainer trainer(config);
    trainer.run(folder);
    Learner& learner = trainer.learner();
    const Tensor x = random_tensor({20, 28, 28}, dtypes::fp32, 3);
    const std::vector<double> logits = learner.predict(x).elements();
    const std::string last = run_folder_checkpoint(folder), converted = temp.file("m.safetensors");
    CHECK(load_evaluator(last, find_loss("softmax_cross_entropy"), 20)->predict(x).elements() == logits);
    learner.convert();
    save_model(converted, learner.model(), read_checkpoint_header(last));
    CHECK(learner.predict(x).elements() == logits);
    CHECK(load_evaluator(converted, find_loss("softmax_cross_entropy"), 20)->predict(x).elements() == logits);
    const auto record = read_model_record(converted);
    REQUIRE(record.has_value());
    CHECK(to_text(parse_model_record(to_text(*record))) == to_text(*record));
  }
}

TEST_CASE("layers of images report what they need, at their place in the configuration") {
  const auto refused = [](const std::string& layers) {
    return error_of([&] {
      const RunConfig c = parse_config(net("model:\n  layers: [" + layers + ", {flatten: {}}, {linear: {out: 10}}]\n"),
                                       "images.yaml", {});
      Trainer trainer(c);
    });
  };
  CHECK(refused("{max_pool: {size: 2}}, {avg_pool: {size: [3, 2], stride: 1}}, {prelu: {}}, {shift: {}}") == "");
  CHECK(contains(refused("{max_pool: {}}"), "missing required key 'model.layers.0.max_pool.size'"));
  CHECK(contains(refused("{max_pool: {size: 2, padding: 2}}"), "is outside the image of 28 x 28 altogether"));
  CHECK(contains(refused("{avg_pool: {size: 29}}"), "[avg_pool] no window fits"));
  CHECK(contains(refused("{quantize: {}}, {avg_pool: {size: 2}}"), "[avg_pool] needs fp32 input, got bint1"));
  CHECK(contains(refused("{flatten: {}}, {max_pool: {size: 2}}"), "[max_pool] needs samples [h,w,c]"));
  CHECK(contains(
      refused("{quantize: {}}, {conv2d: {out: 4, kernel: 3}}"),
      "[conv2d] needs samples [h,w,c], or values [h,w]: got [n,28,28] bint1, codes of images without a channel "
      "axis. Put unsqueeze before the quantize layer"));
  CHECK(refused("{unsqueeze: {}}, {quantize: {}}, {conv2d: {out: 4, kernel: 3, padding: 'same'}}") == "");
  CHECK(contains(refused("{unsqueeze: {}}, {unsqueeze: {}}"), "[unsqueeze] needs samples [h,w]: got [n,28,28,1]"));
  CHECK(contains(refused("{quantize: {}}, {unsqueeze: {}}"), "Put it before the quantize layer"));
  CHECK(contains(refused("{conv2d: {out: 4, kernel: 1}}, {shortcut_a: {out: 3}}"),
                 "[shortcut_a] out: got 3, expected at least the 4 channels"));
  CHECK(contains(refused("{quantize: {}}, {prelu: {}}"), "[prelu] needs fp32 input, got bint1"));
  CHECK(contains(refused("{quantize: {scheme: absmax, dtype: int8, granularity: token}}, {max_pool: {size: 2}}"),
                 "needs scales per tensor or channel(1), got scales per token"));
}
