// What a program calls with the CPU current while its model is on an (emulated) device: the library must find the
// device, and code of the program must not.
#include <algorithm>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/run/quant_monitor.h"
#include "cuda/same_as_cpu.h"
#include "support/numbers.h"
#include "train/promises.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

RunConfig config_named(const PromiseFolder& data, const std::string& feature, const std::string& device) {
  const auto found =
      std::find_if(promises().begin(), promises().end(), [&](const Promise& p) { return p.feature == feature; });
  REQUIRE(found != promises().end());
  return resolve_budget(config_of(data, *found, {"run.bits=strict", "device.kind=" + device}));
}

// A trainer at the end of its run, with its folder in `data`.
std::unique_ptr<Trainer> trained(const RunConfig& config, const std::string& folder = "") {
  auto trainer = std::make_unique<Trainer>(config);
  trainer->run(folder);
  return trainer;
}

}  // namespace

TEST_CASE("Hooks of a run on a device make their tensors where the program makes its own") {
  const KeepModes keep;
  gpu();
  const PromiseFolder data;
  Trainer trainer(config_named(data, "fp32, batch norm, dropout, Adam", "cuda"));
  int ticks = 0, polls = 0, evaluations = 0;
  const auto write = [](int& calls) {
    Tensor t = Tensor::zeros({3}, dtypes::fp32);
    t.as<float>()[1] = 1;
    ++calls;
  };
  TrainHooks hooks;
  hooks.on_tick = [&](const TrainEvent&) { write(ticks); };
  hooks.on_eval = [&](const EvalEvent&) { write(evaluations); };
  hooks.stop_requested = [&] {
    write(polls);
    return StopRequest::kNone;
  };
  trainer.run("", hooks);
  CHECK(ticks > 0);
  CHECK(evaluations > 0);
  CHECK(polls >= ticks);
}

TEST_CASE("A model on a device is exported as the same model on the CPU") {
  const KeepModes keep;
  gpu();
  const PromiseFolder data;
  for (const std::string feature :
       {"moving average of ranges", "learned steps and offsets of activations", "bf16 values, learned steps"}) {
    const RunConfig on_cpu = config_named(data, feature, "cpu");
    const std::string folder = start_run_folder(on_cpu, data.file("exported " + feature)).path;
    const auto host = trained(on_cpu, folder), device = trained(config_named(data, feature, "cuda"));
    const std::string file = folder + "/last.safetensors";
    const auto want = exports_of(host->learner(), file), got = exports_of(device->learner(), file);
    CHECK(want.size() > 5);
    for (const auto& [name, text] : want) {
      INFO(feature << ", " << name);
      CHECK(got.at(name) == text);
    }
  }
}

TEST_CASE("Parameters on a device are assigned, restored, changed and requantized while the CPU is current") {
  const KeepModes keep;
  gpu();
  const PromiseFolder data;
  for (const std::string feature : {"learned steps, 8-bit moments, bf16 masters", "fp32, batch norm, dropout, Adam",
                                    "bf16 values, learned steps"}) {
    INFO(feature);
    const RunConfig config = config_named(data, feature, "cpu");
    const auto host = trained(config), device = trained(config_named(data, feature, "cuda"));
    const std::vector<Parameter*> want = host->learner().model().parameters(),
                                  got = device->learner().model().parameters();
    REQUIRE(want.size() == got.size());
    const auto same = [&](size_t i, const char* after) {
      INFO(want[i]->path() << ", after " << after);
      CHECK(!got[i]->value().device().is_cpu());
      CHECK(got[i]->value().to_vector() == want[i]->value().to_vector());
    };
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor x = random_tensor(want[i]->shape(), dtypes::fp32, i + 1);
      const ParameterState before{want[i]->has_master() ? want[i]->master().clone(MemoryKind::kWorkspace) : Tensor(),
                                  want[i]->low_bit() ? want[i]->value().clone(MemoryKind::kWorkspace) : Tensor()};
      for (Parameter* p : {want[i], got[i]}) p->assign(x, 4);
      same(i, "assign");
      for (Parameter* p : {want[i], got[i]}) p->requantize(config.run.seed, 5);
      same(i, "requantize");
      for (Parameter* p : {want[i], got[i]}) {
        p->restore(before);
        p->change(
            [plain = p->learned().empty()](ParameterSpec& spec) {
              // Learned parts are made anew with another dtype, and are in these lists.
              if (plain && spec.quant && spec.quant->dtype == dtypes::int4) spec.quant->dtype = dtypes::int8;
              spec.latent_clamp = 0.5f;
            },
            6);
      }
      same(i, "restore and change");
    }
  }
}

TEST_CASE("Adapters are merged and codes counted on a device while the CPU is current") {
  const KeepModes keep;
  gpu();
  const PromiseFolder data;
  const auto host = trained(config_named(data, "adapters", "cpu")),
             device = trained(config_named(data, "adapters", "cuda"));
  for (Trainer* trainer : {host.get(), device.get()}) merge_adapters(trainer->learner().model(), true);
  const std::vector<Parameter*> want = host->learner().model().parameters(),
                                merged = device->learner().model().parameters();
  REQUIRE(want.size() == merged.size());
  for (size_t i = 0; i < merged.size(); ++i) {
    CHECK(!merged[i]->value().device().is_cpu());
    CHECK(merged[i]->value().to_vector() == want[i]->value().to_vector());
  }

  const auto narrow = trained(config_named(data, "learned steps, 8-bit moments, bf16 masters", "cuda"));
  for (const Parameter* p : narrow->learner().model().parameters())
    if (p->low_bit()) CHECK(quant_statistics(*p).elements == p->shape().numel());
}
