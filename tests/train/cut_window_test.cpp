// A run that ends inside a window of requantization, and is made longer, goes on as one that was longer from the start.
#include "bitgrad/io/safetensors.h"
#include "support/unsynced_file_system.h"
#include "train/promises.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kSteps = 9;

std::map<std::string, uint64_t> state_after(const RunConfig& config, const std::string& checkpoint = "",
                                            const std::string& folder = "") {
  Trainer trainer(config);
  if (!checkpoint.empty()) trainer.resume(checkpoint);
  trainer.run(folder);
  return state_of(trainer.learner());
}

std::string difference(const std::map<std::string, uint64_t>& a, const std::map<std::string, uint64_t>& b) {
  return state_difference({a, ""}, b);
}

}  // namespace

TEST_CASE("a run made longer at any step of a requantize window is the longer run", "[bits]") {
  const KeepModes keep;
  const UnsyncedFileSystem files;
  const PromiseFolder folder;
  const TempDir temp;
  const std::string every = "quant.requantize_every=4", halves = "batch.micro=5";
  struct Net {
    std::string net;
    Keys keys;
  };
  const std::vector<Net> nets{
      {"table", {every, "quant.weights={dtype: int4, scheme: symmetric}"}},
      {"table",
       {"quant.requantize_every=6", halves, "quant.weights={dtype: int3, scheme: symmetric, rounding: stochastic}"}},
      {"table", {every, "quant.weights={dtype: int4, scheme: lsq, granularity: channel, learned: {lr_factor: 0.1}}"}},
      {"table",
       {every,
        "quant.rules=[{layers: '*', weights: {dtype: int8, scheme: lsq, master: bf16}, activations: {dtype: int8, "
        "scheme: lsq}}]"}},
      {"table",
       {every,
        "quant.rules=[{layers: '*', weights: {dtype: ternary}, activations: {dtype: int8, scheme: affine, observer: "
        "{name: moving_average}}}]"}},
      {"table", {every, "quant.recipe=8da4w", "quant.phases=[{from: 0 steps}, {from: 6 steps, quantization: frozen}]"}},
      {"tokens", {every, "quant.weights={dtype: int8, scheme: affine, granularity: channel}"}}};
  int64_t runs = 0;
  for (const Net& net : nets) {
    const auto config = [&](int64_t steps) {
      Keys keys = net.keys;
      keys.push_back(concat("train.stop=", steps, " steps"));
      return folder.config(net.net, keys);
    };
    const auto uninterrupted = state_after(config(kSteps));
    for (int64_t stop = 1; stop < kSteps; ++stop) {
      INFO(net.net << ' ' << net.keys.back() << ", stopped at " << stop);
      const std::string path = create_run_folder(config(stop), temp.file(std::to_string(runs++)));
      state_after(config(stop), "", path);
      CHECK(difference(uninterrupted, state_after(config(kSteps), path + "/last.safetensors")) == "");
    }
  }
}

TEST_CASE("the codes that a run ends with are those of its masters, and what they were before is set aside") {
  const KeepModes keep;
  const PromiseFolder folder;
  const TempDir temp;
  const auto config = [&](int64_t steps, int64_t every) {
    return folder.config("table", {concat("train.stop=", steps, " steps"), concat("quant.requantize_every=", every),
                                   "quant.weights={dtype: int4, scheme: symmetric}"});
  };
  const auto has_window = [&](const RunConfig& c, const std::string& name) {
    const std::string path = create_run_folder(c, temp.file(name));
    Trainer trainer(c);
    trainer.run(path);
    CHECK(trainer.learner().since_requantize() == 0);
    const SafetensorsFile file = SafetensorsFile::read(path + "/last.safetensors");
    const bool codes = file.contains("layers.0.weight.window_codes");
    CHECK(codes == file.contains("layers.0.weight.window_scale"));
    CHECK(codes == (read_checkpoint_header(path + "/last.safetensors").cut_since_requantize > 0));
    if (codes) {
      const uint8_t *const now = file.data("layers.0.weight.codes"), *const before =
                                                                         file.data("layers.0.weight.window_codes");
      CHECK(!std::equal(now, now + file.entry("layers.0.weight.codes").bytes, before));
    }
    return codes;
  };
  CHECK(has_window(config(3, 2), "cut"));
  CHECK(!has_window(config(4, 2), "whole"));
  CHECK(!has_window(config(3, 1), "each"));
}
