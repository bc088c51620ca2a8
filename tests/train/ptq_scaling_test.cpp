// Methods of quantization after training that scale channels between layers of the float model, and adaround: against
// NumPy (tests/golden/ptq_methods.json) and against the model that they leave.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "bitgrad/base/json.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/tools/budget.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "tools/norm_statistics.h"
#include "tools/ptq/rescale.h"
#include "train/ptq_sequence.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::detail;
using namespace bitgrad::test;

namespace {

Json golden() {
  std::ifstream in(source_path("tests/golden/ptq_methods.json"));
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

// Networks on drawn digits, images of 28 x 28, and samples of them.
struct Net {
  RunConfig config;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Learner> learner, reference;
  std::vector<SampleBatch> samples;

  explicit Net(const std::string& layers) {
    config = parse_config(
        "version: 1\nrun: {name: net, seed: 7}\ndata: {train: {format: digits, size: 40}, test: {format: digits, size: "
        "20}}\nmodel: {layers: " +
            layers + "}\nbatch: {global: 20}\noptim: {name: sgd, lr: 0.1}\ntrain: {stop: 2 steps, eval: {batch: 20}}\n",
        "net.yaml");
    data = open_dataset(config, config.data.train);
    samples = first_samples(*data, 40, 20, 1);
    learner = build_evaluator(config, *data);
    reference = build_evaluator(config, *data);
    for (Learner* l : {learner.get(), reference.get()}) spread(*l);
  }
  // Rows, factors and statistics of different sizes, so that scaling has something to do; biases that are not 0.
  static void spread(Learner& learner) {
    for (Parameter* p : learner.model().parameters()) {
      std::vector<double> values = p->value().elements();
      const size_t row = p->shape().rank() > 1 ? static_cast<size_t>(p->shape().cols()) : 1;
      const bool drawn = p->path().ends_with(".bias") || p->path().ends_with(".beta");
      for (size_t i = 0; i < values.size(); ++i) {
        const double step = static_cast<double>(i / row * 7 % 5) + 1;
        values[i] = drawn ? 0.125 * step - 0.25 : values[i] * step;
      }
      p->restore({Tensor::from_elements(p->value().shape(), dtypes::fp32, values), {}});
    }
    for (const Module::Buffer& b : learner.model().buffers())
      for (int64_t i = 0; i < b.tensor.numel() && b.tensor.dtype() == dtypes::fp32; ++i)
        b.tensor.as<float>()[i] = 0.5f + 0.25f * static_cast<float>(i % 3);
  }
  void set(const std::string& layer, const Matrix& w) const {
    for (Learner* l : {learner.get(), reference.get()}) {
      Parameter& p = *parameter_of(l->model(), layer, "weight");
      p.restore({Tensor::from_elements(p.value().shape(), dtypes::fp32, w.v), {}});
    }
  }
  std::vector<float> outputs(Learner& l) const { return l.predict(samples.front().x).to_vector(); }
  FloatModels models(const PrepareSpec& spec) const { return {*learner, *reference, spec, samples, samples}; }
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return worst / size;
}

const ChannelScaling& scaling_of(const std::vector<ChannelScaling>& all, const std::string& reader) {
  for (const ChannelScaling& s : all)
    if (std::find(s.readers.begin(), s.readers.end(), reader) != s.readers.end()) return s;
  throw Error("no scaling of " + reader);
}

constexpr const char* kMlp =
    "[{flatten: {}}, {linear: {out: 32}}, {relu: {}}, {linear: {out: 24}}, {relu: {}}, {linear: {out: 10}}]";
constexpr const char* kImages =
    "[{conv2d: {out: 6, kernel: 3, stride: 2}}, {batch_norm: {}}, {relu: {}}, {conv2d: {out: 6, kernel: 3, groups: 6, "
    "padding: 1}}, {relu: {}}, {max_pool: {size: 2}}, {conv2d: {out: 4, kernel: 3, groups: 2}}, {relu: {}}, {flatten: "
    "{}}, {linear: {out: 10}}]";
constexpr const char* kNorms =
    "[{flatten: {}}, {layer_norm: {}}, {linear: {out: 32}}, {relu: {}}, {rms_norm: {}}, {linear: {out: 10}}]";

PrepareSpec recipe(const std::string& name) {
  PrepareSpec spec;
  spec.all = find_recipe(name);
  return spec;
}

}  // namespace

TEST_CASE("equalize finds the factors of NumPy") {
  const KeepModes keep;
  const Json file = golden();
  for (const auto& expected : file.at("equalize")) {
    std::vector<int64_t> sizes;
    for (const auto& n : expected["sizes"]) sizes.push_back(n.get<int64_t>());
    std::string layers = "[{flatten: {}}, {linear: {out: 64}}, {hardtanh: {}}";
    for (size_t i = 1; i < sizes.size(); ++i)
      layers += concat(i > 1 ? ", {relu: {}}" : "", ", {linear: {out: ", sizes[i], "}}");
    const Net net(layers + "]");
    for (size_t i = 0; i + 1 < sizes.size(); ++i) {
      Matrix w = Sequence{static_cast<uint32_t>(11 + i)}.matrix(sizes[i + 1], sizes[i]);
      for (int64_t o = 0; o < w.rows; ++o)
        for (int64_t k = 0; k < w.cols; ++k)
          w[o][k] = static_cast<double>(static_cast<float>(w[o][k] * static_cast<double>(o + 1) / 64));
      net.set(concat("layers.", 3 + 2 * i), w);
    }
    const auto all = equalizing_scalings(*net.reference);
    REQUIRE(all.size() == sizes.size() - 1);
    for (size_t i = 1; i < all.size(); ++i) {
      const auto& factors = expected["factors"][i - 1];
      REQUIRE(all[i].factor.size() == static_cast<size_t>(sizes[i]));
      CHECK(all[i].before == concat("layers.", 1 + 2 * i));
      for (size_t j = 0; j < all[i].factor.size(); ++j)
        CHECK(std::abs(all[i].factor[j] / factors[j].get<double>() - 1) < 1e-9);
    }
  }
}

TEST_CASE("equalized weights have equal ranges on both sides, and float outputs stay") {
  const KeepModes keep;
  for (const char* layers : {kMlp, kImages}) {
    CAPTURE(layers);
    const Net net(layers);
    const std::vector<float> before = net.outputs(*net.reference);
    const auto all = equalizing_scalings(*net.reference);
    REQUIRE(all.size() == (layers == kMlp ? 2 : 3));
    for (const ChannelScaling& s : all) {
      CHECK(s.refused.empty());
      const auto [least, most] = std::minmax_element(s.factor.begin(), s.factor.end());
      CHECK(*most > 1.2 * *least);
      apply_scaling(*net.reference, s);
    }
    CHECK(largest_difference(net.outputs(*net.reference), before) < 1e-5);
    for (const ChannelScaling& s : equalizing_scalings(*net.reference))
      for (const double f : s.factor) CHECK(std::abs(f - 1) < 0.02);
    if (layers == kImages) CHECK(scaling_of(all, "layers.3").before == "layers.1");  // the norm
  }
}

TEST_CASE("equalize leaves channels that are dead on one side") {
  const KeepModes keep;
  const Net net("[{flatten: {}}, {linear: {out: 16}}, {batch_norm: {}}, {relu: {}}, {linear: {out: 10}}]");
  Parameter& gamma = *parameter_of(net.reference->model(), "layers.2", "gamma");
  std::vector<double> factors = gamma.value().elements();
  factors[3] = 1e-12;
  gamma.restore({Tensor::from_elements(gamma.shape(), dtypes::fp32, factors), {}});
  Parameter& weight = *parameter_of(net.reference->model(), "layers.4", "weight");
  std::vector<double> values = weight.value().elements();
  for (size_t row = 0; row < 10; ++row) values[row * 16 + 5] *= 1e-9;
  weight.restore({Tensor::from_elements(weight.shape(), dtypes::fp32, values), {}});
  const auto all = equalizing_scalings(*net.reference);
  REQUIRE(all.size() == 1);
  for (size_t i = 0; i < 16; ++i) {
    CAPTURE(i, all[0].factor[i]);
    CHECK((all[0].factor[i] == 1) == (i == 3 || i == 5));
    CHECK(std::abs(std::log10(all[0].factor[i])) < 2);
  }
}

TEST_CASE("smooth divides inputs by the root of their range over that of the weights") {
  const KeepModes keep;
  const Net net(kNorms);
  const std::vector<float> before = net.outputs(*net.reference);
  const auto all = smoothing_scalings(*net.reference, net.samples);
  REQUIRE(all.size() == 2);
  for (const auto& [norm, reader] : {std::pair{"layers.1", "layers.2"}, std::pair{"layers.4", "layers.5"}}) {
    const ChannelScaling& s = scaling_of(all, reader);
    CHECK(s.before == norm);
    const Tensor w = parameter_of(net.reference->model(), reader, "weight")->value();
    std::vector<double> x(s.factor.size()), weight(s.factor.size());
    for (const SampleBatch& batch : net.samples)
      predict_with(*net.reference, batch.x,
                   [&, name = std::string(reader)](const std::string& path, const Tensor& in, const Tensor&) {
                     if (path != name) return;
                     const std::vector<double> values = in.elements();
                     for (size_t i = 0; i < values.size(); ++i)
                       x[i % x.size()] = std::max(x[i % x.size()], std::abs(values[i]));
                   });
    const std::vector<double> values = w.elements();
    for (size_t i = 0; i < values.size(); ++i)
      weight[i % weight.size()] = std::max(weight[i % weight.size()], std::abs(values[i]));
    for (size_t j = 0; j < x.size(); ++j)
      CHECK(std::abs(s.factor[j] - std::sqrt(x[j] / weight[j])) < 1e-9 * s.factor[j]);
  }
  for (const ChannelScaling& s : all) apply_scaling(*net.reference, s);
  CHECK(largest_difference(net.outputs(*net.reference), before) < 1e-5);
}

TEST_CASE("scalings are kept only where the quantized model loses less") {
  const KeepModes keep;
  int kept = 0, dropped = 0;
  for (const auto& [layers, method, name] :
       {std::tuple{kMlp, "equalize", "int4wo_symmetric"}, std::tuple{kImages, "equalize", "w4a8"},
        std::tuple{kImages, "equalize", "w4a8_int"}, std::tuple{kNorms, "smooth", "w4a8"},
        std::tuple{kNorms, "smooth", "int2wo"}}) {
    CAPTURE(layers, name);
    const Net net(layers);
    const std::vector<float> floats = net.outputs(*net.reference);
    const std::vector<float> weights =
        parameter_of(net.learner->model(), "layers.2", "weight") != nullptr
            ? parameter_of(net.learner->model(), "layers.2", "weight")->value().to_vector()
            : std::vector<float>();
    const PrepareSpec spec = recipe(name);
    const auto steps = find_ptq_method(method).prepare(net.models(spec));
    bool any = false;
    for (const PtqLayer& layer : steps) {
      REQUIRE(layer.steps.size() == 1);
      const PtqStep& s = layer.steps.front();
      if (!s.refused.empty()) continue;
      CHECK(s.before > 0);
      CHECK(s.kept == (s.after < s.before));
      CHECK(layer.after == (s.kept ? s.after : s.before));
      CHECK(contains(layer.layer, " -> "));
      any = any || s.kept;
      ++(s.kept ? kept : dropped);
    }
    // Both copies are the same float model as before; without a step that was kept, bit for bit.
    CHECK(net.outputs(*net.learner) == net.outputs(*net.reference));
    CHECK(largest_difference(net.outputs(*net.learner), floats) < 1e-5);
    if (!any) CHECK(net.outputs(*net.learner) == floats);
    for (const LayerSummary& row : summarize(net.learner->model())) CHECK(row.weight == "fp32");
  }
  CHECK(kept > 0);
  CHECK(dropped > 0);
}

TEST_CASE("scalings report what they were measured on, and their time") {
  const KeepModes keep;
  for (const auto& [layers, method, reader, rows, inputs] :
       {std::tuple{kMlp, "equalize", "layers.3", 40, 32}, std::tuple{kImages, "equalize", "layers.6", 40 * 4 * 4, 27},
        std::tuple{kNorms, "smooth", "layers.2", 40, 784}}) {
    CAPTURE(method, reader);
    const Net net(layers);
    const std::vector<PtqLayer> all =
        quantize_with_methods(*net.learner, *net.reference, recipe("w4a8"), {{method}}, net.samples, {});
    const std::string end = std::string("-> ") + reader;
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&end](const PtqLayer& l) { return !l.steps.empty() && l.layer.ends_with(end); });
    REQUIRE(at != all.end());
    CHECK(at->rows == rows);
    CHECK(at->inputs == inputs);
    CHECK(at->steps.front().seconds > 0);
    TextWriter out;
    print_ptq(out, all);
    CHECK(!contains(out.str(), "more samples give better codes"));  // no codes were fitted
  }
}

TEST_CASE("layers that cannot be scaled are refused with the reason") {
  const KeepModes keep;
  const auto refused = [](const std::string& layers, const std::string& reader) {
    const Net net("[{flatten: {}}, {linear: {out: 16}}, " + layers + ", {linear: {out: 10}}]");
    return scaling_of(equalizing_scalings(*net.reference), reader).refused;
  };
  CHECK(
      contains(refused("{hardtanh: {}}", "layers.3"), "the bounds of 'layers.2' (hardtanh) are those of all channels"));
  CHECK(contains(refused("{gelu: {}}", "layers.3"), "'layers.2' (gelu) before it does not give scaled outputs"));
  CHECK(contains(refused("{residual: {body: [{linear: {out: 16}}]}}", "layers.3"), "'layers.2' (residual) before it"));
  CHECK(contains(refused("{residual: {body: [{linear: {out: 16}}]}}", "layers.2.body.0"),
                 "other layers read 'layers.1', too"));
  CHECK(contains(refused("{tensor_norm: {}}", "layers.3"), "'layers.2' has one factor for all channels"));
  CHECK(refused("{relu: {}}", "layers.3").empty());
  const Net one("[{flatten: {}}, {linear: {out: 10}}]"),
      gelu("[{flatten: {}}, {linear: {out: 16}}, {gelu: {}}, {linear: {out: 10}}]");
  const PrepareSpec spec = recipe("w4a8");
  CHECK(contains(error_of([&] { find_ptq_method("equalize").prepare(one.models(spec)); }),
                 "method equalize fits no layer of this model"));
  CHECK(contains(error_of([&] { find_ptq_method("equalize").prepare(gelu.models(spec)); }), "(gelu) before it"));
  CHECK(contains(error_of([&] { find_ptq_method("smooth").prepare(gelu.models(spec)); }),
                 "method smooth fits no layer of this model"));
}

namespace {

// A layer with a bias and the sums of its samples, as scripts/ptq_golden.py draws them.
std::pair<LayerData, LayerState> drawn_layer(int64_t o, int64_t k, int64_t n, int64_t hi) {
  LayerData data;
  data.layer = "layers.0";
  data.w = Sequence{3}.matrix(o, k);
  const Matrix part = Sequence{5}.matrix(o, k), a = Sequence{7}.matrix(n, k);
  for (size_t i = 0; i < part.v.size(); ++i) data.w.v[i] += 0.125 * part.v[i];
  data.grid.spec.dtype = hi == 1 ? dtypes::ternary : dtypes::int4;
  data.grid.spec.scheme = hi == 1 ? "ternary" : "absmax";
  data.grid.spec.granularity = Granularity::channel(0);
  data.grid.lo = -hi;
  data.grid.hi = hi;
  data.grid.block = k;
  Matrix x(n, k);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) x[i][j] = a[i][j] + a[i][(j + 1) % k] + 2 * a[i][(j + 3) % k] + 1;
  Matrix y = multiplied(x, transposed(data.w));
  for (double& v : y.v) v += 0.5;
  LayerSums& s = data.sums;
  s.rows = n;
  s.xx = {multiplied(transposed(x), x)};
  s.yx = {multiplied(transposed(y), x)};
  s.x = {std::vector<double>(static_cast<size_t>(k))};
  s.y.resize(static_cast<size_t>(o));
  s.yy.resize(static_cast<size_t>(o));
  const auto rows = static_cast<double>(n);
  for (Matrix* m : {&s.xx[0], &s.yx[0]})
    for (double& v : m->v) v /= rows;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) s.x[0][static_cast<size_t>(j)] += x[i][j] / rows;
    for (int64_t j = 0; j < o; ++j) {
      s.y[static_cast<size_t>(j)] += y[i][j] / rows;
      s.yy[static_cast<size_t>(j)] += y[i][j] * y[i][j] / rows;
    }
  }
  LayerState state;
  state.codes = Matrix(o, k);
  state.bias.assign(static_cast<size_t>(o), 0.5);
  for (int64_t i = 0; i < o; ++i) {
    double most = 0;
    for (int64_t j = 0; j < k; ++j) most = std::max(most, std::abs(data.w[i][j]));
    state.scales.push_back(static_cast<double>(static_cast<float>(most) / static_cast<float>(hi)));
    for (int64_t j = 0; j < k; ++j) state.codes[i][j] = nearest_code(data, state, static_cast<size_t>(i), data.w[i][j]);
  }
  return {data, state};
}

}  // namespace

TEST_CASE("adaround gives the codes of NumPy") {
  const Json file = golden();
  for (const auto& expected : file.at("adaround")) {
    const auto number = [&](const char* name) { return expected[name].get<int64_t>(); };
    const int64_t o = number("o"), k = number("k");
    CAPTURE(k);
    const auto [data, state] = drawn_layer(o, k, number("n"), number("hi"));
    const LayerState to = find_ptq_method("adaround").layer(data, state, {});
    for (int64_t i = 0; i < o; ++i) {
      std::string codes;
      for (int64_t j = 0; j < k; ++j) codes += (j == 0 ? "" : " ") + std::to_string(static_cast<int>(to.codes[i][j]));
      CHECK(codes == expected["codes"][static_cast<size_t>(i)].text());
    }
    CHECK(to.scales == state.scales);
    const double error = expected["error"].get<double>();
    CHECK(std::abs(total(output_errors(data, to)) / error - 1) < 1e-4);
    CHECK(error < 0.8 * expected["nearest"].get<double>());
  }
}

TEST_CASE("adaround begins with the codes of the step before it, and moves each by one at most") {
  const auto [data, state] = drawn_layer(5, 40, 256, 7);
  const LayerState fitted = find_ptq_method("gptq").layer(data, state, {});
  const LayerState to = find_ptq_method("adaround").layer(data, fitted, {});
  REQUIRE(fitted.codes.v != state.codes.v);
  for (size_t i = 0; i < to.codes.v.size(); ++i) {
    CHECK(std::abs(to.codes.v[i] - fitted.codes.v[i]) <= 1);
    CHECK(std::abs(to.codes.v[i]) <= 7);
    CHECK(to.codes.v[i] == std::nearbyint(to.codes.v[i]));
  }
  struct Threads {
    int before = num_threads();
    ~Threads() { set_num_threads(before); }
  } const restoring;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    CHECK(find_ptq_method("adaround").layer(data, fitted, {}).codes.v == to.codes.v);
  }
}

TEST_CASE("adaround of groups of channels is that of each group alone") {
  const auto [one, state] = drawn_layer(6, 24, 128, 7);
  LayerData both = one;
  both.groups = 2;
  both.sums.xx = {one.sums.xx[0], one.sums.xx[0]};
  both.sums.x = {one.sums.x[0], one.sums.x[0]};
  Matrix upper(3, 24), lower(3, 24);
  std::copy(one.sums.yx[0][0], one.sums.yx[0][3], upper[0]);
  std::copy(one.sums.yx[0][3], one.sums.yx[0][3] + ptrdiff_t{3} * 24, lower[0]);
  both.sums.yx = {upper, lower};
  const PtqMethod& adaround = find_ptq_method("adaround");
  CHECK(adaround.layer(both, state, {}).codes.v == adaround.layer(one, state, {}).codes.v);
}

TEST_CASE("adaround refuses signs and wide layers, and keeps layers whose inputs are constant") {
  auto [data, state] = drawn_layer(2, 8, 32, 7);
  LayerData signs = data;
  signs.grid.signs = true;
  CHECK(find_ptq_method("adaround").refuses(signs, state) == "its codes are signs, which have no neighbors");
  LayerData wide = data;
  wide.w = Matrix(1, 2049);
  CHECK(find_ptq_method("adaround").refuses(wide, state) == "it has 2049 inputs, more than 2048");
  wide.w = Matrix(1, 2048);
  CHECK(find_ptq_method("adaround").refuses(wide, state).empty());
  for (double& v : data.sums.xx[0].v) v = 0;
  for (double& v : data.sums.x[0]) v = 0;
  CHECK(find_ptq_method("adaround").layer(data, state, {}).codes.v == state.codes.v);
}
