// Nothing that is not finite ends well, or takes the place of a checkpoint that is.
#include <limits>
#include <map>
#include <stdexcept>

#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/small_learner.h"
#include "train/wild_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Parameter& parameter(Learner& learner, const std::string& path) {
  for (Parameter* p : learner.model().parameters())
    if (p->path() == path) return *p;
  throw std::runtime_error("no parameter " + path);
}

// 5 -> 3, fp32, squared hinge.
std::unique_ptr<Learner> hinge_learner(int64_t accumulate, double weight) {
  LayerSpec layer = linear_spec(3, dtypes::fp32, "");
  layer.weight.init = {"constant", weight};
  OptimizerSpec sgd;
  sgd.name = "sgd";
  return std::make_unique<Learner>(
      make_sequential({layer}, kFeatures), find_loss("squared_hinge"), sgd, RequantPolicy{accumulate, accumulate},
      [](int64_t) { return 0.1f; }, 1);
}

}  // namespace

TEST_CASE("runs that overflow end with an error that names the step, and leave finite checkpoints") {
  const KeepModes keep;
  const TempDir temp;
  int64_t runs = 0;
  for (const WildRun& run : wild_runs()) {
    INFO(run.name);
    const RunConfig config = small_config(run.keys, kWildNet);
    CHECK(wrong_end(run, config, create_run_folder(config, temp.file(std::to_string(runs++)))) == "");
    CHECK(wrong_end(run, config, "") == "");
  }
  CHECK(runs >= 20);
}

TEST_CASE("a loss that is not finite ends the step before anything moves, and names what of the model is not") {
  const std::vector<int32_t> labels{0, 1};
  const Tensor x = Tensor::full({2, kFeatures}, dtypes::fp32, 1.0);
  for (const int64_t accumulate : {1, 2}) {
    const auto learner = hinge_learner(accumulate, 1e19);
    const auto before = bits_of(parameter(*learner, "layers.0.weight").master());
    for (int64_t i = 1; i < accumulate; ++i) learner->microbatch(x, labels);
    CHECK(error_of([&] { learner->microbatch(x, labels); }) ==
          "[non-finite] the loss is inf in a forward pass at optimizer step 0. Parameters, moments and running "
          "statistics are all finite; the largest value is 1e+19, in 'layers.0.weight.master'. A smaller learning "
          "rate or a smaller initialization may help.");
    CHECK(learner->usable());
    CHECK(learner->window_samples() == 0);
    CHECK(bits_of(parameter(*learner, "layers.0.weight").master()) == before);
    // No trace of it is left.
    learner->microbatch(Tensor::zeros({2, kFeatures}, dtypes::fp32, MemoryKind::kBatch), labels);
    CHECK(error_code_of([&] { learner->evaluate(x, labels); }) == 5);
    CHECK(contains(error_of([&] { learner->evaluate(x, labels); }), "the loss is inf in an evaluation"));
    parameter(*learner, "layers.0.bias").master().as<float>()[0] = kInf;
    CHECK(
        contains(error_of([&] { learner->evaluate(x, labels); }), "NaN or Inf in the model: 'layers.0.bias.master'."));
  }
}

TEST_CASE("an update that overflows is an error of its own step, for fp32 and bf16 masters, fused or not") {
  const std::vector<int32_t> labels{0, 1};
  const Tensor x = Tensor::full({2, kFeatures}, dtypes::fp32, 1.0);
  for (const bool fused : {true, false})
    for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16}) {
      LayerSpec layer = linear_spec(3, dtypes::int8, "absmax");
      layer.weight.master = master;
      layer.weight.init = {"constant", 1};
      OptimizerSpec spec;
      spec.name = "adamw";
      spec.weight_decay = 1000;
      spec.fused = fused;
      // Codes of every 8th step: what moves in between is seen by no quantizer.
      Learner learner(
          make_sequential({layer}, kFeatures), find_loss("softmax_cross_entropy"), spec, RequantPolicy{1, 8},
          [](int64_t step) { return step == 2 ? 1e36f : 1e-3f; }, 1);
      learner.microbatch(x, labels);
      learner.microbatch(x, labels);
      const std::string text = error_of([&] { learner.microbatch(x, labels); });
      INFO(text);
      CHECK(contains(text, "[optimizer] the update of 'layers.0."));
      CHECK(contains(text, "gave NaN or Inf at optimizer step 2: the model is lost."));
      CHECK_FALSE(learner.usable());
    }
}

TEST_CASE("a file that holds NaN is an error of its own, and what was in the learner is not trained on") {
  const TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 2);
  save_checkpoint(temp.file("c"), *learner, {}, "the: config");
  for (const char* name : {"layers.0.weight.master", "layers.0.weight.scale", "layers.0.weight.adam.v",
                           "layers.1.running_var", "layers.3.bias.master"}) {
    INFO(name);
    const SafetensorsFile whole = SafetensorsFile::read(temp.file("c"));
    std::vector<float> bad(static_cast<size_t>(whole.entry(name).bytes / 4), kInf);
    std::vector<SafetensorsItem> items;
    for (const SafetensorsEntry& e : whole.entries())
      items.push_back({e.name, e.dtype, e.shape,
                       e.name == name ? static_cast<const void*>(bad.data()) : whole.data(e.name), e.bytes});
    std::map<std::string, std::string> metadata = whole.metadata();
    std::erase_if(metadata, [](const auto& entry) { return contains(entry.first, "crc32c"); });
    write_safetensors(temp.file("bad"), items, metadata);
    const auto other = small_learner();
    const auto load = [&] { load_checkpoint(temp.file("bad"), *other); };
    CHECK(error_code_of(load) == 5);
    CHECK(contains(error_of(load), concat("[checkpoint] ", temp.file("bad"), ": '", name,
                                          "' holds NaN or Inf: expected finite values. Resume from a")));
  }
}

TEST_CASE("values that have grown past any use end a run, and are named") {
  const KeepModes keep;
  const TempDir temp;
  const auto learner = hinge_learner(1, 1e36);
  const std::string path = temp.file("large.safetensors");
  CHECK(contains(error_of([&] { save_checkpoint(path, *learner, {}, ""); }),
                 "'layers.0.weight.master' has grown to 1e+36 (more than 1e+18 is of no use: squares overflow) at "
                 "optimizer step 0"));
  CHECK(error_code_of([&] { save_checkpoint(path, *learner, {}, ""); }) == 5);
  CHECK(!file_system().exists(path));
  CHECK_NOTHROW(save_checkpoint(path, *hinge_learner(1, 1e17), {}, ""));

  // Signs hide it from the loss: the codes of such masters are +1 and -1.
  const RunConfig config =
      small_config({"quant.weights={dtype: bint1, scheme: binary, ste: identity, init: \"uniform(-1e30,1e30)\"}"});
  for (const std::string& folder : {std::string(), create_run_folder(config, temp.file("run"))}) {
    CHECK(contains(error_of([&] { run_all(config, folder); }), ".weight.master' has grown to "));
    CHECK(error_code_of([&] { run_all(config, ""); }) == 5);
  }
}
