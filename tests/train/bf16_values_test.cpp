// model.values: what the key says, and that runs, checkpoints and converted files keep it.
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/tools/ptq.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kBf16 = "model.values=bf16";

// The dtype of what the second layer reads when `x` is predicted.
DType between(Learner& learner, const Tensor& x) {
  DType seen = dtypes::int64;
  const auto before = learner.state().on_forward;
  learner.state().on_forward = [&](const std::string& path, const Tensor& in, const Tensor&) {
    if (path == "layers.1") seen = in.dtype();
  };
  learner.predict(x);
  learner.state().on_forward = before;
  return seen;
}

Tensor batch_of(const Dataset& data) { return first_samples(data, 20, 20, 1)[0].x; }

}  // namespace

TEST_CASE("model.values is fp32 unless set to bf16, and is written back") {
  CHECK(small({}).values == dtypes::fp32);
  const RunConfig c = small({kBf16});
  CHECK(c.values == dtypes::bf16);
  CHECK(contains(to_yaml(c), "values: bf16"));
  CHECK((parse_config(to_yaml(c), "r.yaml") == c));
  const std::vector<ConfigDifference> differ = config_differences(small({}), c);
  REQUIRE(differ.size() == 1);
  CHECK(differ[0].key == "model.values");
  CHECK(model_spec(c, Form{.sample = {3}}).input.values == dtypes::bf16);
}

TEST_CASE("a bad model.values is an error at its place with the allowed values") {
  const std::string text = with_line("model:", "model:\n  values: fp16");
  CHECK(places(text) == "4:11");
  CHECK(contains(text_error(text),
                 "c.yaml:4:11: error: model.values: got 'fp16', expected one of fp32, bf16\n  4 |   values: fp16\n"));
  CHECK(places(with_line("model:", "model:\n  values: [bf16]")) == "4:11");
  CHECK(places(with_line("model:", "model:\n  value: bf16")) == "4:3");
  CHECK(contains(text_error(with_line("model:", "model:\n  values: bf61")),
                 "got 'bf61', did you mean 'bf16'? Expected one of fp32, bf16"));
}

TEST_CASE("checkpoints and converted files of bf16 models record the dtype, and open to the same outputs") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({kBf16, "run.bits=strict"}, kSmallInt4);
  const std::string folder = create_run_folder(config, temp.file("run"));
  Trainer trainer(config);
  trainer.run(folder);
  Learner& learner = trainer.learner();
  const auto data = open_dataset(config, *config.data.test);
  const Tensor x = batch_of(*data);
  CHECK(between(learner, x) == dtypes::bf16);
  const auto logits = bits_of(learner.predict(x));
  const std::string last = run_folder_checkpoint(folder), converted = temp.file("m.safetensors");
  learner.convert();
  save_model(converted, learner.model(), read_checkpoint_header(last));
  CHECK(bits_of(learner.predict(x)) == logits);
  const auto record = read_model_record(last);
  REQUIRE(record.has_value());
  CHECK(record->model.input.values == dtypes::bf16);
  CHECK(contains(to_text(*record), "\"values\":\"bf16\""));
  CHECK(to_text(parse_model_record(to_text(*record))) == to_text(*record));
  const auto opened = load_evaluator(last, find_loss("softmax_cross_entropy"), 20);
  CHECK(between(*opened, x) == dtypes::bf16);
  CHECK(bits_of(opened->predict(x)) == logits);
  const auto evaluator = load_evaluator(config, *data, converted);
  CHECK(between(*evaluator, x) == dtypes::bf16);
  CHECK(bits_of(evaluator->predict(x)) == logits);
}

TEST_CASE("a record without values is of fp32, and one with others is refused") {
  ModelRecord record;
  record.model.input.sample = {4};
  LayerSpec relu;
  relu.kind = "relu";
  record.model.layers = {completed(relu)};
  std::string text = to_text(record);
  CHECK_FALSE(contains(text, "values"));
  CHECK(parse_model_record(text).model.input.values == dtypes::fp32);
  record.model.input.values = dtypes::bf16;
  text = to_text(record);
  CHECK(parse_model_record(text).model.input.values == dtypes::bf16);
  text.replace(text.find("bf16"), 4, "int8");
  CHECK(error_of([&] { make_model(parse_model_record(text).model); }) ==
        "[model] values between layers: got int8, expected fp32 or bf16");
}
