// bench_ranks: a step of training on several ranks, without the time of its products. The model is linear layers, one
// by default, and Adam; the ranks are threads, or the processes that mpirun has started (docs/ranks.md):
//
//   bench_ranks --ranks 2 [--layers L] [--size N] [--weight int4|bint1|int8|fp32] [--grad fp32|bf16]
//               [--wire exact|bf16|int8] [--microbatches M] [--samples S] [--threads T] [--interface NAME]
//               [--repeat R] [--json FILE] [--compare OLD] [--slack S]
//   mpirun -n 2 --bind-to none bench_ranks [...]
//
// Wall times of rank 0, medians over the steps:
//   step              the window of all ranks: forward and backward of its microbatches, sum, update, requantization
//   forward backward  of the microbatches of this rank: their number times the mean of those of the same step that do
//                     not end the window, which is why each rank has two at least
//   rest              step less forward backward, in each step: what of the wire, sums and updates did not hide behind
//                     the backward pass that ends the window
// bytes a weight: of one step, of the rank that sends most, as the communicator counts; with --interface also as the
// kernel counts for a network interface of rank 0, headers and all else included. x_all_reduce: bytes of an all-reduce
// in fp32, 8 (W - 1) / W for W ranks, over ours. scripts/bench_ranks.sh runs PyTorch's beside it.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <memory>
#include <optional>
#include <thread>

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/dist/engines.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"
#include "shared/common.h"
#include "shared/measure.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;

struct Options : SharedOptions {
  Options() : SharedOptions{.repeat = 9} {}
  int64_t ranks = 2, layers = 1, size = 4096, microbatches = 4, samples = 4;
  int64_t weights() const { return layers * size * size; }
  DType weight = dtypes::int4, grad = dtypes::fp32;
  WireFormat wire = WireFormat::kExact;
  std::string interface = {};
};

std::unique_ptr<Learner> make_learner(const Options& o) {
  LayerSpec layer;
  layer.kind = "linear";
  layer.attributes["out"] = o.size;
  layer.attributes["bias"] = false;
  layer.weight.grad = o.grad;
  if (!o.weight.is_float()) {
    const bool signs = o.weight.kind() == DTypeKind::kSign;
    layer.weight.quant.emplace();
    layer.weight.quant->dtype = o.weight;
    layer.weight.quant->scheme = signs ? "binary" : "absmax";
    if (!signs) layer.weight.quant->granularity = Granularity::channel(0);
  }
  OptimizerSpec adam;
  adam.name = "adam";
  auto learner = std::make_unique<Learner>(
      make_sequential(std::vector(static_cast<size_t>(o.layers), layer), o.size), find_loss("softmax_cross_entropy"),
      adam, RequantPolicy{o.microbatches, o.microbatches}, [](int64_t) { return 1e-4f; }, 1);
  learner->plan({.input = {.sample = {o.size}}, .outputs = o.size, .train_samples = o.samples});
  return learner;
}

// One rank and its part of the measurements.
class Rank {
 public:
  Rank(const Options& options, std::shared_ptr<Communicator> ranks)
      : options_(options), ranks_(std::move(ranks)), learner_(make_learner(options)) {
    learner_->set_communicator(ranks_, options.wire);
    const RandomStream draws{1, Purpose::kUser, site_id("x"), static_cast<uint32_t>(ranks_->rank())};
    for (int64_t i = 0; i < x_.numel(); ++i) x_.as<float>()[i] = draws.uniform(static_cast<uint64_t>(i)) * 2 - 1;
    for (int64_t i = 0; i < options.samples; ++i) labels_.push_back(static_cast<int32_t>((7 * i + 1) % options.size));
  }

  // The row of the report, on every rank.
  Json measure() {
    constexpr int kUnmeasured = 2;  // steps: the first one makes buffers and connections
    for (int i = 0; i < kUnmeasured; ++i) step();
    steps_.clear();
    forward_backward_.clear();
    rest_.clear();
    const int64_t sent = ranks_->bytes_sent(), by_interface = sent_by_interface();
    for (int64_t i = 0; i < options_.repeat; ++i) step();
    return row(a_weight(ranks_->bytes_sent() - sent), a_weight(sent_by_interface() - by_interface));
  }

 private:
  void step() {
    const int64_t own = options_.microbatches / ranks_->size();
    const double start = now_ns(TimeBase::kWall);
    double last = start;  // when the microbatch that ends the window begins
    for (int64_t i = 0; i < own; ++i) {
      if (i + 1 == own) last = now_ns(TimeBase::kWall);
      learner_->microbatch(x_, labels_);
    }
    const auto others = static_cast<double>(own - 1);
    steps_.push_back(now_ns(TimeBase::kWall) - start);
    forward_backward_.push_back((last - start) / others * (others + 1));
    rest_.push_back(steps_.back() - forward_backward_.back());
  }

  // What the network interface of rank 0 has sent so far, if one was named.
  int64_t sent_by_interface() const {
    if (options_.interface.empty() || ranks_->rank() > 0) return 0;
    const std::string path = concat("/sys/class/net/", options_.interface, "/statistics/tx_bytes");
    int64_t bytes = 0;
    require(bool(std::ifstream(path) >> bytes), "bench_ranks", "--interface: cannot read ", path);
    return bytes;
  }

  double a_weight(int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(options_.repeat * options_.weights());
  }

  Json row(double sent, double by_interface) const {
    const std::vector<double> all = gather_values(*ranks_, std::span<const double>(&sent, 1));
    const double most = *std::max_element(all.begin(), all.end());
    const auto size = static_cast<double>(ranks_->size());
    Json row{{"size", options_.size},
             {"layers", options_.layers},
             {"weight", options_.weight.name()},
             {"grad", options_.grad.name()},
             {"wire", std::string(enum_name(options_.wire))},
             {"microbatches", options_.microbatches},
             {"samples", options_.samples},
             {"ranks", ranks_->size()},
             {"engine", ranks_->info().engine},
             {"threads", options_.threads},
             {"step_s", median(steps_) / 1e9},
             {"forward_backward_s", median(forward_backward_) / 1e9},
             {"rest_s", median(rest_) / 1e9},
             {"bytes_a_weight", most}};
    if (!options_.interface.empty()) row["interface_bytes_a_weight"] = by_interface;
    row["x_all_reduce"] = most > 0 ? Json(8 * (size - 1) / size / most) : Json(nullptr);
    return row;
  }

  const Options& options_;
  std::shared_ptr<Communicator> ranks_;
  std::unique_ptr<Learner> learner_;
  Tensor x_ = Tensor::empty({options_.samples, options_.size}, dtypes::fp32, MemoryKind::kBatch, Device::cpu());
  std::vector<int32_t> labels_;
  std::vector<double> steps_, forward_backward_, rest_;  // ns of each step
};

// If this rank fails, the others end too.
Json measure_rank(const Options& options, const std::shared_ptr<Communicator>& ranks) {
  try {
    return Rank(options, ranks).measure();
  } catch (const std::exception& error) {
    ranks->cancel(error_for_ranks(error));
    throw;
  }
}

Json measure_threads(const Options& options) {
  const auto ranks = make_thread_ranks(options.ranks);
  std::vector<std::thread> others;
  for (size_t r = 1; r < ranks.size(); ++r)
    others.emplace_back([&options, rank = ranks[r]] {
      const SilentLog silent;
      try {
        measure_rank(options, rank);
      } catch (const std::exception&) {  // rank 0 says it
      }
    });
  std::optional<Json> row;
  std::exception_ptr failed;
  try {
    row = measure_rank(options, ranks[0]);
  } catch (...) {
    failed = std::current_exception();
  }
  for (std::thread& t : others) t.join();
  if (failed) std::rethrow_exception(failed);
  return *row;
}

void print(const Json& row) {
  std::cout << row.at("layers") << " x [" << row.at("size") << ", " << row.at("size") << "] " << row.at("weight").text()
            << ", gradients " << row.at("grad").text() << ", wire " << row.at("wire").text() << ", "
            << row.at("microbatches") << " microbatches of " << row.at("samples") << ", " << row.at("ranks")
            << " ranks: " << row.at("engine").text() << ", " << row.at("threads")
            << (row.at("threads") == 1 ? " thread\n" : " threads\n");
  constexpr std::pair<const char*, const char*> kColumns[] = {{"step s", "step_s"},
                                                              {"forward backward s", "forward_backward_s"},
                                                              {"rest s", "rest_s"},
                                                              {"bytes a weight", "bytes_a_weight"},
                                                              {"by interface", "interface_bytes_a_weight"},
                                                              {"x all-reduce", "x_all_reduce"}};
  for (const auto& [title, key] : kColumns) std::cout << std::setw(20) << title;
  std::cout << '\n' << std::fixed << std::setprecision(4);
  for (const auto& [title, key] : kColumns) {
    std::cout << std::setw(20);
    if (row.contains(key) && row.at(key).is_number())
      std::cout << row.at(key).get<double>();
    else
      std::cout << '-';
  }
  std::cout << std::endl;
}

void add_options(cli::Arguments& args, Options& o) {
  args.option("--ranks", o.ranks, "threads of this process that are ranks, without mpirun (2)").range(1, 64);
  args.option("--layers", o.layers, "linear layers, one after another (1)").range(1, 256);
  args.option("--size", o.size, "inputs and outputs of a layer (4096)").range<int64_t>(8, 65536);
  args.choice<DType>("--weight", o.weight,
                     {{"int4", dtypes::int4}, {"bint1", dtypes::bint1}, {"int8", dtypes::int8}, {"fp32", dtypes::fp32}},
                     "int4, bint1, int8, fp32 (int4)");
  args.choice<DType>("--grad", o.grad, {{"fp32", dtypes::fp32}, {"bf16", dtypes::bf16}},
                     "of the gradients that are added: fp32, bf16 (fp32)");
  args.choice<WireFormat>("--wire", o.wire,
                          {{"exact", WireFormat::kExact}, {"bf16", WireFormat::kBf16}, {"int8", WireFormat::kInt8}},
                          "of the gradients between ranks: exact, bf16, int8 (exact)");
  args.option("--microbatches", o.microbatches, "of a step, of all ranks together (4)").range(2, 4096);
  args.option("--samples", o.samples, "of a microbatch (4)").range(1, 65536);
  args.option("--interface", o.interface, "a network interface whose bytes are counted too");
  add_threads_option(args, o);
  add_report_options(args, o, "x_all_reduce");
}

int run(cli::Arguments& args, int argc, char** argv) {
  Options o;
  add_options(args, o);
  const std::optional<Launch> launch = find_launch();
  if (launch && launch->rank > 0)
    args.parse(argc, argv);  // rank 0 alone writes files
  else
    parse(args, argc, argv, o);
  set_num_threads(o.threads);
  if (launch && launch->rank > 0) set_log_sink(nullptr);
  const std::shared_ptr<Communicator> launched = launched_ranks();
  require(!launched || args.count("--ranks") == 0, "bench_ranks", "--ranks: got ", o.ranks, " below ",
          launched ? launched->info().engine : "", ", whose processes are the ranks");
  if (launched) o.ranks = launched->size();
  require(o.microbatches % o.ranks == 0 && o.microbatches >= 2 * o.ranks, "bench_ranks", "--microbatches: got ",
          o.microbatches, ", expected a multiple of ", o.ranks, " ranks, two for each at least");
  const Json row = launched ? measure_rank(o, launched) : measure_threads(o);
  if (launched && launched->rank() > 0) return 0;
  print(row);
  Json report = new_report(o.threads);
  report.at("rows").push_back(row);
  return finish(report, o,
                {{"weight", "grad", "wire", "size", "layers", "microbatches", "samples", "ranks"}, "x_all_reduce"});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("bench_ranks", "a step of training on several ranks, less forward and backward",
                  [&](cli::Arguments& args) { return run(args, argc, argv); });
}
