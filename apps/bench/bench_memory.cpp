// bench_memory: bytes by kind of a training step of a square MLP for each choice of weights, masters and moments: the
// memory account beside the growth of resident memory. The expected bytes of weights, masters and moments are also
// computed from the shapes; a difference ends the program with status 1. Each choice runs in its own process, so that
// no peak hides another.
#include <fstream>
#include <iomanip>
#include <iostream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/optim/optimizer.h"
#include "shared/child.h"
#include "shared/common.h"

namespace {

using namespace bitgrad;

struct Options {
  int64_t hidden = 4096, depth = 4, batch = 100, steps = 2;
  int threads = 0;
  std::vector<std::string> weights{"bint1", "int4", "int8"};
  std::string activations = "int8", grad = "fp32", json;
};

struct Choice {
  DType weights;
  MasterKind master;
  MomentKind moments;
};

constexpr MasterKind kMasters[] = {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone};
constexpr MomentKind kMoments[] = {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8};

QuantSpec quant(DType dtype, const Granularity& granularity) {
  QuantSpec spec;
  spec.dtype = dtype;
  spec.scheme = dtype.kind() == DTypeKind::kSign ? "binary" : "absmax";
  if (spec.scheme != "binary") spec.granularity = granularity;
  return spec;
}

std::vector<LayerSpec> layers(const Choice& choice, const Options& options) {
  std::vector<LayerSpec> list;
  for (int64_t i = 0; i < options.depth; ++i) {
    LayerSpec quantize, linear;
    quantize.kind = "quantize";
    quantize.activation = quant(parse_dtype(options.activations), Granularity::tensor());
    linear.kind = "linear";
    linear.attributes["out"] = options.hidden;
    linear.attributes["bias"] = false;
    linear.weight.quant = quant(choice.weights, Granularity::channel(0));
    linear.weight.quant->ste = SteRule::kIdentity;
    linear.weight.grad = parse_dtype(options.grad);
    linear.weight.init = {"glorot_uniform"};
    linear.weight.master = choice.master;
    if (choice.master == MasterKind::kNone && choice.weights.kind() == DTypeKind::kSign)
      linear.weight.optimizer = "bop";
    list.push_back(quantize);
    list.push_back(linear);
  }
  return list;
}

// Expected bytes by kind, computed from the shapes.
Json expected_bytes(const Choice& choice, const Options& options, Module& model) {
  const int64_t n = options.hidden * options.hidden, blocks = (n + 255) / 256;
  const bool signs = choice.weights.kind() == DTypeKind::kSign;
  const int64_t moments = choice.master == MasterKind::kNone && signs ? 1 : 2;
  const int64_t each = choice.moments == MomentKind::kFp32   ? 4 * n
                       : choice.moments == MomentKind::kBf16 ? 2 * n
                                                             : (n + 7) / 8 * 8 + 4 * blocks;
  const int64_t master = choice.master == MasterKind::kFp32 ? 4 * n : choice.master == MasterKind::kBf16 ? 2 * n : 0;
  int64_t derived = 0;
  for (const Parameter* p : model.parameters())
    for (const Tensor& t : p->value().attached_layouts())
      derived += t.layout().info().bytes(t.dtype(), t.rows(), t.cols());
  return {{"value", options.depth * options.hidden * row_bytes_memory(choice.weights, options.hidden)},
          {"derived", derived},
          {"quant_state", signs ? 0 : options.depth * options.hidden * 4},
          {"master", options.depth * master},
          {"optimizer", options.depth * moments * each}};
}

Json account(const MemoryAccount& memory) {
  Json out = Json::object();
  for (int i = 0; i < kMemoryKinds; ++i)
    out[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = memory.bytes[static_cast<size_t>(i)];
  out["total"] = memory.total;
  return out;
}

Json run(const Choice& choice, const Options& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const int64_t rss_before = bench::status_bytes("VmRSS");
  StepState state;
  state.seed = 1;
  const auto model = make_sequential(layers(choice, options), options.hidden);
  model->initialize("layers", state);
  Form meta;
  meta.samples = options.batch;
  meta.sample = {options.hidden};
  model->plan(meta);
  OptimizerSpec adam;
  adam.name = "adam";
  adam.moments = choice.moments;
  const auto optimizer = make_optimizer(adam);
  optimizer->attach(model->parameters());
  const Tensor x = Tensor::empty({options.batch, options.hidden}, dtypes::fp32, MemoryKind::kBatch);
  const RandomStream draws{1, Purpose::kUser, site_id("bench_memory"), 0};
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = draws.uniform(static_cast<uint64_t>(i)) * 2 - 1;
  std::vector<int32_t> labels(static_cast<size_t>(options.batch));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(static_cast<int64_t>(i) % options.hidden);
  const Json standing = account(memory_now());
  reset_memory_peaks();
  for (int64_t step = 0; step < options.steps; ++step) {
    {
      Tape tape;
      tape.backward(softmax_cross_entropy(model->forward(x), labels));
    }
    optimizer->step(1e-3f, options.batch);
    ++state.step;
    ++state.microbatch;
    for (Parameter* p : model->parameters()) p->requantize(state.seed, state.step);
  }
  Json row{{"weights", choice.weights.name()},
           {"masters", master_name(choice.master)},
           {"moments", moment_name(choice.moments)},
           {"standing", standing},
           {"expected", expected_bytes(choice, options, *model)},
           {"peak", account(memory_at_peak())},
           {"peak_by_kind", account(memory_peak_by_kind())},
           {"rss_growth", bench::status_bytes("VmHWM") - rss_before}};
  row["as_expected"] = true;
  for (const auto& [kind, bytes] : row["expected"].members())
    if (standing.at(kind) != bytes) row["as_expected"] = false;
  return row;
}

constexpr const char* kColumns[] = {"value", "derived", "quant_state", "master", "optimizer", "grad", "workspace"};

void print(const Json& row) {
  std::cout << std::left << std::setw(8) << row["weights"].get<std::string>() << std::setw(8)
            << row["masters"].get<std::string>() << std::setw(8) << row["moments"].get<std::string>() << std::right;
  for (const char* kind : kColumns) std::cout << std::setw(12) << row["peak_by_kind"][kind].get<int64_t>();
  std::cout << std::setw(13) << row["peak"]["total"].get<int64_t>() << std::setw(13) << row["rss_growth"].get<int64_t>()
            << (row["as_expected"].get<bool>() ? "" : "  differs from the size computed from the shapes") << std::endl;
}

int run_all(const Options& options) {
  std::cout << options.depth << " layers of " << options.hidden << " x " << options.hidden << ", batch "
            << options.batch << ", activations " << options.activations << ", gradients " << options.grad
            << ", bytes: the peak of each kind, of the total, and growth of resident memory\n"
            << std::left << std::setw(8) << "weights" << std::setw(8) << "masters" << std::setw(8) << "moments"
            << std::right;
  for (const char* kind : kColumns) std::cout << std::setw(12) << kind;
  std::cout << std::setw(13) << "total" << std::setw(13) << "resident" << '\n';
  Json rows = Json::array();
  bool good = true;
  for (const std::string& weights : options.weights)
    for (const MasterKind master : kMasters)
      for (const MomentKind moments : kMoments) {
        const Choice choice{parse_dtype(weights), master, moments};
        const std::string name = weights + ", masters " + std::string(master_name(master)) + ", moments " +
                                 std::string(moment_name(moments));
        rows.push_back(bench::run_in_child(name, [&] { return run(choice, options); }));
        print(rows[rows.size() - 1]);
        good = good && rows[rows.size() - 1]["as_expected"].get<bool>();
      }
  if (!options.json.empty())
    std::ofstream(options.json) << Json{{"machine", cpu_model_name()},
                                        {"hidden", options.hidden},
                                        {"depth", options.depth},
                                        {"batch", options.batch},
                                        {"rows", rows}}
                                       .dump(2)
                                << '\n';
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  cli::Arguments args{"Memory of a training step under each choice of weights, masters and moments."};
  Options options;
  args.option("--hidden", options.hidden).range(1, 65536);
  args.option("--depth", options.depth).range(1, 1000);
  args.option("--batch", options.batch).range(1, 1000000);
  args.option("--steps", options.steps).range(1, 1000);
  args.option("--threads", options.threads, "0: all cores").range(0, 1024);
  args.option("--weights", options.weights, "dtypes of weights").delimiter(',');
  args.option("--activations", options.activations, "dtype of activations");
  args.option("--grad", options.grad, "fp32 or bf16");
  args.option("--json", options.json, "write the results to this file");
  return bench::run_main("bench_memory", [&] {
    args.parse(argc, argv);
    return run_all(options);
  });
}
