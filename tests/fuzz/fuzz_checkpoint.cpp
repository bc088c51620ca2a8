// A checkpoint or a model file, opened as the commands do: header, records, the model of its own configuration with its
// numbers, one prediction; and as first numbers of another model. Input as forged_safetensors.
#include "bitgrad/base/parallel.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/run/trainer.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

namespace {

constexpr int64_t kFeatures = 4, kClasses = 3;

// Stands for data that the file's configuration names.
class NoData final : public Dataset {
 public:
  std::string name() const override { return "no data"; }
  int64_t size() const override { return 1; }
  std::vector<int64_t> sample_shape() const override { return {kFeatures}; }
  int64_t classes() const override { return kClasses; }
};

void load_into_its_own(const std::string& file) {
  const CheckpointHeader header = read_checkpoint_header(file);
  const RunConfig config = parse_config(header.config, file);
  const NoData data;
  const std::unique_ptr<Learner> learner = load_evaluator(config, data, file);
  const Tensor y = learner->predict(Tensor::zeros({2, kFeatures}, dtypes::fp32, MemoryKind::kBatch));
  fuzz::expect(y.rows() == 2 && y.cols() >= kClasses, "a prediction has a score for each class");
}

void load_into_another(const std::string& file) {
  LayerSpec linear;
  linear.kind = "linear";
  linear.attributes["out"] = kClasses;
  linear.attributes["bias"] = false;
  const auto model = make_sequential({linear}, kFeatures);
  StepState state;
  model->initialize(kModelRoot, state);
  init_from(file, *model);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_num_threads(1);
  fuzz::MemoryFiles disk;
  disk.files["fuzz"] = fuzz::forged_safetensors(data, size);
  fuzz::takes([] { load_into_its_own("fuzz"); });
  fuzz::takes([] { load_into_another("fuzz"); });
  return 0;
}
