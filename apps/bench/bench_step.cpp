// bench_step: one training step of the FINN nets (TFC, SFC, LFC) and of a 3 x 4096 MLP, part by part, with the memory
// account beside the resident memory of the process. Parts: forward, backward, update (optimizer without requantize),
// requantize (codes and derived layouts).
//
//   bench_step [--net tfc,sfc,lfc,mlp4096] [--batch 100] [--weights bint1] [--activations bint1] [--threads 1]
//   [--repeat 50] [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/optim/optimizer.h"
#include "shared/common.h"

namespace {

using namespace bitgrad;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Net {
  const char* name;
  int64_t width;
};
constexpr Net kNets[] = {{"tfc", 64}, {"sfc", 256}, {"lfc", 1024}, {"mlp4096", 4096}};
constexpr int64_t kFeatures = 784, kClasses = 10;

struct Options {
  std::vector<std::string> nets{"tfc", "sfc", "lfc"};
  int64_t batch = 100, repeat = 50;
  int threads = 1;
  std::string weights = "bint1", activations = "bint1", json;
};

// 1 bit: sign; ternary: round to {-1, 0, 1}; other codes: symmetric.
QuantSpec quant(const std::string& dtype) {
  QuantSpec spec;
  spec.dtype = parse_dtype(dtype);
  spec.scheme =
      spec.dtype == dtypes::ternary ? "fixed" : (spec.dtype.kind() == DTypeKind::kSign ? "binary" : "symmetric");
  return spec;
}

// The layers of accuracy.md's FINN nets: quantize, dropout, three times [linear, batch norm, quantize, dropout],
// linear, tensor norm.
std::vector<LayerSpec> layers(int64_t width, const Options& options) {
  std::vector<LayerSpec> list;
  const auto add = [&](const char* kind) -> LayerSpec& {
    list.emplace_back().kind = kind;
    return list.back();
  };
  const auto quantize_and_drop = [&] {
    add("quantize").activation = quant(options.activations);
    add("dropout").p = 0.2;
  };
  const auto linear = [&](int64_t out) {
    LayerSpec& l = add("linear");
    l.out = out;
    l.weight.quant = quant(options.weights);
    l.weight.quant->ste = SteRule::kIdentity;
    l.weight.init = {"uniform", -1, 1};
    l.weight.latent_clamp = 1.0f;
  };
  quantize_and_drop();
  for (int i = 0; i < 3; ++i) {
    linear(width);
    add("batch_norm");
    quantize_and_drop();
  }
  linear(kClasses);
  add("tensor_norm").eps = 1e-4f;
  return list;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

struct Times {
  std::vector<double> forward, backward, update, requantize;
};

template <typename F>
void timed(std::vector<double>& list, F&& f) {
  const Clock::time_point start = Clock::now();
  f();
  list.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
}

void one_step(Module& model, Optimizer& optimizer, StepState& state, const Tensor& x, std::span<const int32_t> labels,
              Times& t) {
  {
    Tape tape;
    Var loss;
    timed(t.forward, [&] { loss = squared_hinge(model.forward(x), labels); });
    timed(t.backward, [&] { tape.backward(loss); });
  }
  timed(t.update, [&] { optimizer.step(0.02f, x.rows()); });
  ++state.step;
  ++state.microbatch;
  timed(t.requantize, [&] {
    for (Parameter* p : model.parameters()) p->requantize(state.seed, state.step);
  });
}

Json run(const Net& net, const Options& options) {
  const int64_t rss_before = bench::status_bytes("VmRSS");
  reset_memory_peaks();
  StepState state;
  state.seed = 1;
  const auto model = make_sequential(layers(net.width, options), kFeatures);
  model->initialize("layers", state);
  TensorMeta meta;
  meta.rows = options.batch;
  meta.features = kFeatures;
  model->plan(meta);
  OptimizerSpec adam;
  adam.name = "adam";
  const auto optimizer = make_optimizer(adam);
  optimizer->attach(model->parameters());
  const Tensor x = Tensor::empty({options.batch, kFeatures}, dtypes::fp32, MemoryKind::kBatch);
  const RandomStream draws{1, Purpose::kUser, site_id("bench_step"), 0};
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = draws.uniform(static_cast<uint64_t>(i)) * 2 - 1;
  std::vector<int32_t> labels(static_cast<size_t>(options.batch));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % kClasses);
  Times warm, t;
  for (int i = 0; i < 3; ++i) one_step(*model, *optimizer, state, x, labels, warm);
  for (int64_t i = 0; i < options.repeat; ++i) one_step(*model, *optimizer, state, x, labels, t);
  const MemoryAccount peak = memory_at_peak();
  Json row{{"net", net.name},
           {"batch", options.batch},
           {"weights", options.weights},
           {"activations", options.activations},
           {"threads", options.threads},
           {"forward_ms", median(t.forward)},
           {"backward_ms", median(t.backward)},
           {"update_ms", median(t.update)},
           {"requantize_ms", median(t.requantize)}};
  row["step_ms"] = row["forward_ms"].get<double>() + row["backward_ms"].get<double>() + row["update_ms"].get<double>() +
                   row["requantize_ms"].get<double>();
  Json memory = Json::object();
  for (int i = 0; i < kMemoryKinds; ++i)
    if (peak.bytes[static_cast<size_t>(i)] > 0)
      memory[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = peak.bytes[static_cast<size_t>(i)];
  memory["total_peak"] = peak.total;
  row["memory"] = memory;
  row["rss_growth"] = bench::status_bytes("VmHWM") - rss_before;
  return row;
}

void print(const Json& row) {
  std::cout << std::left << std::setw(9) << row["net"].get<std::string>() << std::right << std::fixed
            << std::setprecision(3);
  for (const char* part : {"forward_ms", "backward_ms", "update_ms", "requantize_ms", "step_ms"})
    std::cout << std::setw(12) << row[part].get<double>();
  std::cout << "\n         bytes:";
  for (const auto& [kind, bytes] : row["memory"].items()) std::cout << ' ' << kind << ' ' << bytes;
  std::cout << " | resident growth " << row["rss_growth"] << '\n';
}

int run_all(const Options& options) {
  set_num_threads(options.threads);
  std::cout << "batch " << options.batch << ", weights " << options.weights << ", activations " << options.activations
            << ", threads " << options.threads << ", isa " << isa_names(cpu_isa()) << ", medians of " << options.repeat
            << " steps, ms\n"
            << "net           forward    backward      update  requantize        step\n";
  Json rows = Json::array();
  for (const std::string& name : options.nets) {
    const auto net = std::find_if(std::begin(kNets), std::end(kNets), [&](const Net& n) { return name == n.name; });
    require(net != std::end(kNets), "bench_step", "unknown net '", name, "', known are tfc, sfc, lfc, mlp4096");
    rows.push_back(run(*net, options));
    print(rows.back());
  }
  if (!options.json.empty())
    std::ofstream(options.json) << Json{{"machine", cpu_model_name()}, {"rows", rows}}.dump(2) << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Time and memory of a training step, part by part."};
  Options options;
  app.add_option("--net", options.nets, "tfc, sfc, lfc, mlp4096")->delimiter(',');
  app.add_option("--batch", options.batch)->check(CLI::Range(1, 1000000));
  app.add_option("--repeat", options.repeat)->check(CLI::Range(1, 1000000));
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--weights", options.weights, "dtype of weights");
  app.add_option("--activations", options.activations, "dtype of activations");
  app.add_option("--json", options.json, "write the rows here");
  return bench::run_app(app, argc, argv, [&] { return run_all(options); });
}
