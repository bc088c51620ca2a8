// bench_ptq: quantization after training. Times of gptq for square weights, int4 with a scale a row, beside NumPy:
//
//   bench_ptq [--sizes LIST] [--rival numpy] [--threads N] [--repeat R] [--json FILE] [--compare OLD] [--slack S]
//
// With --model instead: what lists of methods lose on a model and its data (bench_ptq_lists.cpp).
//   bench_ptq --model RUN_OR_FILE --recipe NAME [--layers GLOB] [--list a,b ...] [--calibrate N] [--held-out N]
//             [key=value ...]
#include "bench_ptq.h"

#include <cmath>
#include <fstream>
#include <iomanip>
#include <optional>

#include "bitgrad/base/parallel.h"
#include "shared/measure.h"
#include "shared/rival.h"
#include "shared/scratch.h"
#include "tools/ptq/method.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;
using detail::Matrix;

constexpr const char* kWhere = "bench_ptq";
constexpr int64_t kRows = 512;  // of inputs; H is that of their products plus the identity

// As scripts/bench_ptq.py draws them.
Matrix drawn(int64_t rows, int64_t cols, uint32_t seed) {
  Matrix m(rows, cols);
  for (double& v : m.v) {
    seed = seed * 1664525 + 1013904223;
    v = static_cast<double>((seed >> 24) % 17) - 8;
  }
  return m;
}

struct Layer {
  detail::LayerData data = {};
  detail::LayerState state = {};
};

Layer drawn_layer(int64_t k) {
  Layer layer;
  detail::LayerData& data = layer.data;
  data.layer = "drawn";
  data.w = drawn(k, k, 3);
  data.grid.spec.dtype = dtypes::int4;
  data.grid.spec.scheme = "absmax";
  data.grid.spec.granularity = Granularity::channel(0);
  data.grid.lo = -7;
  data.grid.hi = 7;
  data.grid.block = k;
  const Matrix x = drawn(kRows, k, 7);
  Matrix h(k, k);
  detail::add_product(1.0 / static_cast<double>(kRows), block_of(x, 0, kRows, 0, k), block_of(x, 0, kRows, 0, k),
                      block_of(h, 0, k, 0, k));
  for (int64_t i = 0; i < k; ++i) h[i][i] += 1;
  data.sums.rows = kRows;
  data.sums.yx = {multiplied(data.w, h)};  // the outputs are those of the weights
  data.sums.xx = {std::move(h)};
  layer.state.codes = Matrix(k, k);
  for (int64_t o = 0; o < k; ++o) {
    double most = 0;
    for (int64_t j = 0; j < k; ++j) most = std::max(most, std::abs(data.w[o][j]));
    layer.state.scales.push_back(static_cast<double>(static_cast<float>(most) / 7.0f));
  }
  return layer;
}

// Mean of |(w - q) x|^2 relative to that of |w x|^2.
double relative_error(const Layer& layer, const detail::LayerState& state) {
  Matrix rest = values_of(layer.data, state);
  for (size_t i = 0; i < rest.v.size(); ++i) rest.v[i] = layer.data.w.v[i] - rest.v[i];
  const Matrix product = multiplied(rest, layer.data.sums.xx[0]);
  double error = 0, size = 0;
  for (size_t i = 0; i < rest.v.size(); ++i) {
    error += product.v[i] * rest.v[i];
    size += layer.data.sums.yx[0].v[i] * layer.data.w.v[i];
  }
  return error / size;
}

struct Turn {
  double seconds = 0, error = 0;
  int64_t differ = 0;  // of the rival's codes
};

// How many of the codes, one byte each in a file, are not these.
int64_t codes_that_differ(const Matrix& codes, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> theirs(codes.v.size());
  file.read(theirs.data(), std::ssize(theirs));
  require(file.gcount() == std::ssize(theirs), kWhere, "the rival wrote ", file.gcount(), " codes, expected ",
          theirs.size());
  int64_t differ = 0;
  for (size_t i = 0; i < theirs.size(); ++i)
    differ += codes.v[i] != static_cast<double>(static_cast<signed char>(theirs[i]));
  return differ;
}

// scripts/bench_ptq.py for this size; nullopt: NumPy is not installed.
std::optional<Turn> rival_turn(int64_t k, int threads, const Matrix& codes) {
  const Scratch scratch("codes");
  const std::optional<Json> row = row_of_rival(kWhere, concat(program_of("BITGRAD_PYTHON", "python3"), ' ',
                                                              program_of("BITGRAD_BENCH_PTQ", "scripts/bench_ptq.py"),
                                                              ' ', k, ' ', threads, ' ', scratch.file()));
  if (!row) return std::nullopt;
  return Turn{row->at("seconds").get<double>(), row->at("error").get<double>(),
              codes_that_differ(codes, scratch.file())};
}

void bench_size(const PtqOptions& o, int64_t k, Json& rows) {
  const Layer layer = drawn_layer(k);
  std::vector<double> ours, theirs;
  Turn we, they;
  for (int64_t turn = 0; turn < o.repeat; ++turn) {
    const double begin = now_ns(time_base(o.threads));
    const detail::LayerState to = detail::find_ptq_method("gptq").layer(layer.data, layer.state, PtqSpec());
    ours.push_back((now_ns(time_base(o.threads)) - begin) / 1e9);
    if (turn == 0) we.error = relative_error(layer, to);
    if (o.rival.empty()) continue;
    const std::optional<Turn> rival = rival_turn(k, o.threads, to.codes);
    require(rival.has_value(), kWhere, "--rival numpy: BITGRAD_PYTHON names no Python that has NumPy");
    theirs.push_back(rival->seconds);
    they.error = rival->error;
    they.differ = rival->differ;
  }
  we.seconds = median(ours);
  Json row{{"size", k}, {"seconds", we.seconds}, {"error", we.error}};
  std::cout << "gptq " << std::setw(5) << k << " x " << std::left << std::setw(6) << k << std::right << std::fixed
            << std::setprecision(3) << std::setw(9) << we.seconds << " s  error " << 100 * we.error << " %";
  if (!theirs.empty()) {
    they.seconds = median(theirs);
    row.update({{"rival_seconds", they.seconds},
                {"rival_error", they.error},
                {"codes_that_differ", they.differ},
                {"x_rival", they.seconds / we.seconds}});
    std::cout << "  NumPy " << they.seconds << " s  error " << 100 * they.error << " %  x rival "
              << std::setprecision(2) << they.seconds / we.seconds << "  codes that differ: " << they.differ << " of "
              << k * k;
  }
  std::cout << std::endl;
  rows.push_back(row);
}

int run(cli::Arguments& args, int argc, char** argv) {
  PtqOptions o;
  args.option("--sizes", o.sizes, "inputs and outputs of the weights (768,4096)");
  args.option(
      "--rival", o.rival,
      "numpy: the same in NumPy, in turns (BITGRAD_PYTHON: its Python, BITGRAD_BENCH_PTQ: scripts/bench_ptq.py, "
      "if not of this folder)");
  args.option("--model", o.model, "a run folder or model file instead: what methods lose on it");
  args.option("--recipe", o.recipe, "of --model: recipe of the layers");
  args.option("--layers", o.layers, "of --model: the layers that are quantized, by path (*)");
  args.option("--list", o.lists,
              "of --model: methods in their order, such as gptq,bias; repeatable; default: each alone and some lists")
      .repeatable();
  args.option("--calibrate", o.calibrate, "of --model: samples of data.train that methods are fitted to (512)")
      .range<int64_t>(1, 1000000);
  args.option("--held-out", o.held_out, "of --model: samples of data.train behind them, by which lists compare (1000)")
      .range<int64_t>(1, 1000000);
  args.option("overrides", o.overrides, "of --model: key=value of the configuration, such as data.root=DIR");
  add_threads_option(args, o);
  add_report_options(args, o, "x_rival");
  parse(args, argc, argv, o);
  set_num_threads(o.threads);
  require(o.rival.empty() || o.rival == "numpy", kWhere, "--rival: got '", o.rival, "', expected numpy");
  if (!o.model.empty()) {
    require(!o.recipe.empty(), kWhere, "--model needs --recipe NAME");
    require(o.rival.empty() && args.count("--sizes") == 0, kWhere, "--sizes and --rival are not for --model");
    for (const char* option : {"--compare", "--slack", "--repeat"})
      require(args.count(option) == 0, kWhere, option, " is not for --model: its losses are not timed");
    return bench_lists(o);
  }
  for (const char* option : {"--recipe", "--layers", "--list", "--calibrate", "--held-out", "overrides"})
    require(args.count(option) == 0, kWhere, option, " needs --model");
  Json report = new_report(o.threads);
  std::cout << machine_of(report) << ", " << o.threads << " threads\n";
  for (const int64_t k : whole_numbers(o.sizes)) {
    require(k >= 1 && k <= 8192, kWhere, "--sizes: got '", o.sizes, "', expected whole numbers of 1 to 8192");
    bench_size(o, k, report.at("rows"));
  }
  return finish(report, o, {{"size"}, "x_rival"});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("bench_ptq", "quantization after training: times of gptq, and what lists of methods lose",
                  [&](cli::Arguments& args) { return run(args, argc, argv); });
}
