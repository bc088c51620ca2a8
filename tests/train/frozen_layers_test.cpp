// train.frozen: a backbone stays as it is, bit for bit, while a head learns.
#include <cmath>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/nn/prepare.h"
#include "support/log_lines.h"
#include "train/promise_nets.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kBackbone = "train.frozen=['layers.[0-3]']";

// Names of tensors that differ between the checkpoints of two runs.
std::vector<std::string> changed(const std::string& before, const std::string& after) {
  const SafetensorsFile a = SafetensorsFile::read(before + "/last.safetensors"),
                        b = SafetensorsFile::read(after + "/last.safetensors");
  std::vector<std::string> names;
  for (const SafetensorsEntry& e : b.entries()) {
    if (!a.contains(e.name) || e.name.find("adam") != std::string::npos || e.name.ends_with(".average")) continue;
    const uint8_t *const x = a.data(e.name), *const y = b.data(e.name);
    if (a.entry(e.name).bytes != e.bytes || !std::equal(x, x + e.bytes, y)) names.push_back(e.name);
  }
  return names;
}

bool below(const std::string& name, char last) {
  return name.starts_with("layers.") && name[7] <= last && name[8] == '.';
}

struct Runs {
  PromiseFolder folder;
  TempDir temp;
  std::string train(const std::string& name, const std::vector<std::string>& keys) {
    const RunConfig config = folder.config("table", keys);
    const std::string path = create_run_folder(config, temp.file(name));
    run_all(config, path);
    return path;
  }
};

}  // namespace

TEST_CASE("everything of a frozen layer stays bit for bit, and the rest trains") {
  const KeepModes keep;
  Runs runs;
  const std::vector<std::vector<std::string>> nets{
      {"train.stop=6 steps"},
      {"quant.recipe=int8wo"},
      {"quant.rules=[{layers: '*', weights: {dtype: int8}, activations: {dtype: int8, scheme: affine, observer: {name: "
       "moving_average}}}]"},
      {"quant.rules=[{layers: '*', weights: {dtype: int4, scheme: symmetric, master: bf16}}]", "batch.micro=5"},
      {"quant.rules=[{layers: '*', weights: {dtype: int4, scheme: lsq}, activations: {dtype: int8, scheme: lsq}}]"},
      {"quant.recipe=w4a4", "train.ema=0.75"},
      {"model.values=bf16"},
  };
  int64_t count = 0;
  for (const std::vector<std::string>& net : nets) {
    INFO(net[0]);
    const std::string id = std::to_string(count++);
    const std::string base = runs.train("base" + id, net);
    std::vector<std::string> keys = net;
    keys.insert(keys.end(), {kBackbone, "model.init_from=" + base});
    const std::string frozen = runs.train("frozen" + id, keys);
    const std::vector<std::string> names = changed(base, frozen);
    for (const std::string& name : names) {
      INFO(name);
      CHECK(!below(name, '3'));
    }
    for (const std::string name : {"layers.4.bias", "layers.6.bias"})
      CHECK(std::find(names.begin(), names.end(), name + ".master") != names.end());
  }
}

TEST_CASE("weights.frozen holds a weight, and what of its layer still trains is reported") {
  const KeepModes keep;
  Runs runs;
  const std::string base = runs.train("base", {});
  const LogLines log;
  const std::string frozen =
      runs.train("frozen", {"model.init_from=" + base, "model.layers.0.linear.weights={frozen: true}"});
  const std::vector<std::string> names = changed(base, frozen);
  CHECK(std::find(names.begin(), names.end(), "layers.0.weight.master") == names.end());
  CHECK(std::find(names.begin(), names.end(), "layers.0.bias.master") != names.end());
  CHECK(std::count(log.warnings.begin(), log.warnings.end(),
                   "weights.frozen holds the weight of a layer alone: layers.0.bias still trains. train.frozen holds "
                   "whole layers, such as train.frozen: [layers.0]") == 1);
  const LogLines whole;
  runs.train("whole",
             {"model.init_from=" + base, "model.layers.0.linear.weights={frozen: true}", "train.frozen=[layers.0]"});
  CHECK(std::none_of(whole.warnings.begin(), whole.warnings.end(),
                     [](const std::string& line) { return contains(line, "still trains"); }));
}

TEST_CASE("from a phase on, norms train on their running statistics and leave them") {
  const KeepModes keep;
  Runs runs;
  const auto phases = [](const std::string& from) {
    return "quant.phases=[{from: 0 steps}, {from: " + from + ", norm_statistics: false}]";
  };
  const std::string early = runs.train("early", {"train.stop=3 steps", phases("100 steps")});
  const std::string late = runs.train("late", {"train.stop=6 steps", phases("3 steps")});
  const std::string never = runs.train("never", {"train.stop=6 steps", phases("100 steps")});
  const auto moved = [&](const std::string& run, const std::string& name) {
    const std::vector<std::string> names = changed(early, run);
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string name : {"layers.1.running_mean", "layers.1.running_var"}) {
    CHECK(!moved(late, name));
    CHECK(moved(never, name));
  }
  CHECK(moved(late, "layers.1.gamma.master"));
  CHECK(contains(runs.folder.config("table", {phases("3 steps")}).quant.phases[1].mode.norm_statistics ? "" : "fixed",
                 "fixed"));
  const RunConfig again =
      parse_config(to_yaml(runs.folder.config("table", {phases("3 steps"), kBackbone})), "again.yaml");
  CHECK(again == runs.folder.config("table", {phases("3 steps"), kBackbone}));
}

TEST_CASE("globs of train.frozen that change nothing, or half a layer, are errors at their place") {
  const KeepModes keep;
  Runs runs;
  const auto error = [&](const std::vector<std::string>& keys, const std::string& net = "table") {
    return error_of([&] { Trainer(runs.folder.config(net, keys)); });
  };
  CHECK(contains(error({"train.frozen=[layers.2]"}),
                 "'layers.2' matches no layer that training changes: these are "
                 "layers.0, layers.1, layers.4, layers.6. Globs match"));
  CHECK(contains(error({"train.frozen=['layers.9*']"}), "'layers.9*' matches no layer"));
  CHECK(contains(error({"train.frozen=['layers.[0']"}), "layers.[0"));
  CHECK(contains(error({"train.frozen=['*']"}), "nothing trains"));
}

TEST_CASE("a frozen norm passes the gradient of its evaluation") {
  const int64_t rows = 6, columns = 3;
  LayerSpec norm, linear;
  norm.kind = "batch_norm";
  linear.kind = "linear";
  linear.attributes = {{"out", int64_t{columns}}, {"bias", false}};
  for (const bool by_phase : {false, true}) {
    ModelSpec spec;
    spec.input.sample = {columns};
    spec.layers = {linear, norm};
    const auto model = make_model(spec);
    if (!by_phase) freeze_layers(*model, {"layers.1"});
    StepState state;
    state.seed = 3;
    model->initialize(kModelRoot, state);
    if (by_phase) set_quant_mode(*model, {QuantSwitch::kOn, true, false});
    const std::vector<Module::Buffer> buffers = model->buffers();
    for (const Module::Buffer& b : buffers)
      for (int64_t i = 0; i < columns; ++i)
        b.tensor.as<float>()[i] =
            b.path.ends_with("var") ? 0.5f + static_cast<float>(i) : 0.25f * static_cast<float>(i);
    Tensor x = Tensor::empty({rows, columns}, dtypes::fp32);
    for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    state.training = false;
    const Tensor evaluated = model->forward(Var(x)).value().clone(MemoryKind::kActivation);
    state.training = true;
    Tape tape;
    const Var y = model->forward(Var(x));
    for (int64_t i = 0; i < evaluated.numel(); ++i) CHECK(y.value().as<float>()[i] == evaluated.as<float>()[i]);
    Tensor gy = Tensor::full({rows, columns}, dtypes::fp32, 1.0);
    tape.backward({y}, {gy});
    const Tensor& g = model->parameters()[0]->grad();
    for (int64_t o = 0; o < columns; ++o)
      for (int64_t k = 0; k < columns; ++k) {
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(x.as<float>()[r * columns + k]);
        const double right = sum / std::sqrt(0.5 + static_cast<double>(o) + 1e-5);
        CHECK(std::fabs(static_cast<double>(g.as<float>()[o * columns + k]) - right) < 1e-5);
      }
    for (const Module::Buffer& b : model->buffers())
      CHECK(b.tensor.as<float>()[1] == (b.path.ends_with("var") ? 1.5f : 0.25f));
  }
}

TEST_CASE("observers of frozen layers see the first batch alone, if they have no range") {
  const KeepModes keep;
  Runs runs;
  const std::string quant =
      "quant.rules=[{layers: '*', weights: {dtype: int8}, activations: {dtype: int8, scheme: affine, observer: {name: "
      "moving_average}}}]";
  const auto state = [&](const std::string& name, const std::string& steps) {
    return runs.train(name, {quant, "train.stop=" + steps, kBackbone}) + "/last.safetensors";
  };
  const SafetensorsFile one = SafetensorsFile::read(state("one", "1 steps")),
                        six = SafetensorsFile::read(state("six", "6 steps"));
  int64_t held = 0, moved = 0;
  for (const SafetensorsEntry& e : six.entries()) {
    if (e.name.find("observer") == std::string::npos) continue;
    INFO(e.name);
    const bool same = std::equal(one.data(e.name), one.data(e.name) + e.bytes, six.data(e.name));
    if (e.name.ends_with(".high")) CHECK(*reinterpret_cast<const float*>(six.data(e.name)) != 0.0f);
    if (below(e.name, '3')) CHECK(same);
    (same ? held : moved) += 1;
  }
  CHECK((held > 0 && moved > 0));
}
