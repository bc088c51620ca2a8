// Methods of quantization after training, each against its formula in double on small weights.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "bitgrad/base/json.h"
#include "bitgrad/base/parallel.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "tools/ptq/method.h"
#include "train/ptq_sequence.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::detail;
using namespace bitgrad::test;

namespace {

QuantSpec quant(DType dtype, const std::string& scheme, const Granularity& granularity) {
  QuantSpec q;
  q.dtype = dtype;
  q.scheme = scheme;
  q.granularity = granularity;
  return q;
}

Matrix drawn(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 draw(seed);
  Matrix m(rows, cols);
  for (double& v : m.v) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(draw() >> 8) * 0x1p-24;
    v = static_cast<double>(static_cast<float>(sum));
  }
  return m;
}

// A layer [o, k] whose inputs are mixed from few drawn ones, and its quantized state by the scheme.
struct Case {
  LayerData data;
  LayerState state;
  Matrix x, y;

  Case(int64_t o, int64_t k, const QuantSpec& spec, int64_t dead = -1, int64_t groups = 1) {
    data.layer = "layers.0";
    data.w = drawn(o, k, 5);
    for (double& v : data.w.v) v = static_cast<double>(static_cast<float>(v * 0.1));
    data.groups = groups;
    data.grid.spec = spec;
    const CodeRange range = find_quantizer(spec.scheme).code_range(spec);
    data.grid.lo = range.lo;
    data.grid.hi = range.hi;
    data.grid.signs = spec.dtype.kind() == DTypeKind::kSign;
    data.grid.shared = spec.granularity.kind == Granularity::kTensor;
    data.grid.block = spec.granularity.kind == Granularity::kGroup ? spec.granularity.group : k;
    sums(dead);
    state.codes = Matrix(o, k);
    state.scales.assign(data.grid.shared ? 1 : static_cast<size_t>(o * data.blocks()), 1.0);
    if (spec.scheme == "affine") state.zeros = state.scales;
    if (spec.scheme == "minmax_offset") state.offsets = state.scales;
    state.bias.assign(static_cast<size_t>(o), 0.0);
    for (int64_t begin = 0; begin < k; begin += data.grid.block)
      fit_scales(data, data.w, {0, o, begin, std::min(begin + data.grid.block, k)}, state);
    for (int64_t i = 0; i < o; ++i)
      for (int64_t j = 0; j < k; ++j) state.codes[i][j] = nearest_code(data, state, data.scale_of(i, j), data.w[i][j]);
  }

  void sums(int64_t dead) {
    const int64_t n = 3 * data.w.cols + 20, k = data.w.cols, o = data.w.rows, part = o / data.groups;
    x = multiplied(drawn(n, k, 7), drawn(k, k, 8));
    for (double& v : x.v) v = v * 0.2 + 0.3;
    if (dead >= 0)
      for (int64_t i = 0; i < n; ++i) x[i][dead] = 0;
    y = multiplied(x, transposed(data.w));
    data.sums.rows = n;
    data.sums.y.assign(static_cast<size_t>(o), 0.0);
    data.sums.yy = data.sums.y;
    for (int64_t g = 0; g < data.groups; ++g) {
      data.sums.xx.push_back(multiplied(transposed(x), x));
      Matrix of(n, part);
      for (int64_t i = 0; i < n; ++i) std::copy(y[i] + g * part, y[i] + (g + 1) * part, of[i]);
      data.sums.yx.push_back(multiplied(transposed(of), x));
      data.sums.x.emplace_back(static_cast<size_t>(k));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < k; ++j) data.sums.x.back()[static_cast<size_t>(j)] += x[i][j] / static_cast<double>(n);
      for (auto* m : {&data.sums.xx.back(), &data.sums.yx.back()})
        for (double& v : m->v) v /= static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < o; ++j) {
        data.sums.y[static_cast<size_t>(j)] += y[i][j] / static_cast<double>(n);
        data.sums.yy[static_cast<size_t>(j)] += y[i][j] * y[i][j] / static_cast<double>(n);
      }
  }

  // Mean over rows of |y - w x - b|^2, from the rows themselves.
  double error_of(const LayerState& s) const {
    double sum = 0;
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t o = 0; o < data.w.rows; ++o) {
        double d = y[i][o] - s.bias[static_cast<size_t>(o)];
        for (int64_t k = 0; k < x.cols; ++k) d -= value_of(data, s, o, k) * x[i][k];
        sum += d * d;
      }
    return sum / static_cast<double>(x.rows);
  }
};

// The published algorithm without blocks, by the inverse of H (Gauss-Jordan) and its Cholesky factor.
Matrix reference_codes(const Case& c, const LayerState& state, double damp) {
  const Matrix& xx = c.data.sums.xx[0];
  const int64_t k = xx.rows;
  std::vector<int64_t> order(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return xx[a][a] > xx[b][b]; });
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += xx[i][i] / static_cast<double>(k);
  Matrix a(k, 2 * k);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < k; ++j) a[i][j] = xx[order[static_cast<size_t>(i)]][order[static_cast<size_t>(j)]];
    a[i][i] = (a[i][i] == 0 ? mean : a[i][i]) + damp * mean;
    a[i][k + i] = 1;
  }
  for (int64_t p = 0; p < k; ++p) {
    const double pivot = a[p][p];
    for (int64_t j = 0; j < 2 * k; ++j) a[p][j] /= pivot;
    for (int64_t i = 0; i < k; ++i) {
      const double f = a[i][p];
      if (i != p)
        for (int64_t j = 0; j < 2 * k; ++j) a[i][j] -= f * a[p][j];
    }
  }
  Matrix lower(k, k);  // inverse = lower lower^T, U = lower^T
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double s = a[i][k + j];
      for (int64_t m = 0; m < j; ++m) s -= lower[i][m] * lower[j][m];
      lower[i][j] = i == j ? std::sqrt(s) : s / lower[j][j];
    }
  Matrix codes(c.data.w.rows, k);
  for (int64_t o = 0; o < c.data.w.rows; ++o) {
    std::vector<double> w;
    for (const int64_t p : order) w.push_back(xx[p][p] == 0 ? 0.0 : c.data.w[o][p]);
    for (int64_t j = 0; j < k; ++j) {
      const auto column = order[static_cast<size_t>(j)];
      const double s = state.scales[c.data.scale_of(o, column)];
      const double q = std::clamp(std::nearbyint(w[static_cast<size_t>(j)] / s), static_cast<double>(c.data.grid.lo),
                                  static_cast<double>(c.data.grid.hi));
      codes[o][column] = q;
      const double e = (w[static_cast<size_t>(j)] - s * q) / lower[j][j];
      for (int64_t m = j; m < k; ++m) w[static_cast<size_t>(m)] -= e * lower[m][j];
    }
  }
  return codes;
}

const QuantSpec kInt4 = quant(dtypes::int4, "absmax", Granularity::channel(0));
const QuantSpec kTernary = quant(dtypes::ternary, "ternary", Granularity::channel(0));
const QuantSpec kInt2Groups = quant(dtypes::int2, "symmetric", Granularity::groups(32));

}  // namespace

TEST_CASE("products and factors of matrices in double") {
  for (const int64_t n : {1, 3, 63, 64, 65, 127, 128, 129, 200}) {
    CAPTURE(n);
    const Matrix x = drawn(2 * n + 3, n, 1);
    Matrix h = multiplied(transposed(x), x);
    double worst = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < x.rows; ++k) sum += x[k][i] * x[k][j];
        worst = std::max(worst, std::abs(sum - h[i][j]));
      }
    CHECK(worst < 1e-10);
    Matrix kept = h, u;
    REQUIRE(inverse_factor(kept, u));
    // U h U^T = 1 for h^-1 = U^T U.
    const Matrix unit = multiplied(multiplied(u, h), transposed(u));
    worst = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) worst = std::max(worst, std::abs(unit[i][j] - (i == j ? 1.0 : 0.0)));
    CHECK(worst < 1e-9);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < i; ++j) CHECK(u[i][j] == 0);
    std::vector<double> b(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) b[static_cast<size_t>(i)] += h[i][j] * static_cast<double>(j % 5);
    REQUIRE(solve(h, b));
    for (int64_t i = 0; i < n; ++i) CHECK(std::abs(b[static_cast<size_t>(i)] - static_cast<double>(i % 5)) < 1e-8);
  }
  Matrix negative(2, 2), u;
  negative[0][0] = 1;
  negative[1][1] = -1;
  CHECK(!inverse_factor(negative, u));
}

TEST_CASE("the error of a layer's output is that of its rows") {
  for (const QuantSpec& spec :
       {kInt4, kTernary, kInt2Groups, quant(dtypes::uint4, "minmax_offset", Granularity::groups(16)),
        quant(dtypes::int4, "affine", Granularity::tensor())}) {
    Case c(6, 40, spec);
    c.state.bias.assign(6, 0.25);
    const double expected = c.error_of(c.state);
    CHECK(std::abs(total(output_errors(c.data, c.state)) - expected) < 1e-9 * (1 + expected));
  }
}

TEST_CASE("gptq gives the codes of the published algorithm") {
  for (const int64_t k : {1, 2, 31, 127, 128, 129, 260})
    for (const QuantSpec& spec : {kInt4, kTernary}) {
      CAPTURE(k, spec.dtype.name());
      const Case c(5, k, spec);
      const LayerState to = find_ptq_method("gptq").layer(c.data, c.state, {});
      CHECK(to.codes.v == reference_codes(c, c.state, 0.01).v);
      CHECK(to.scales == c.state.scales);
      if (k > 30) CHECK(total(output_errors(c.data, to)) < total(output_errors(c.data, c.state)));
    }
}

TEST_CASE("gptq gives the codes and scales of NumPy") {
  std::ifstream in(source_path("tests/golden/gptq.json"));
  const Json golden = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  for (const auto& expected : golden.at("cases")) {
    const auto number = [&](const char* name) { return expected[name].get<int64_t>(); };
    const int64_t o = number("o"), k = number("k"), n = number("n"), group = number("group"), dead = number("dead");
    CAPTURE(k, group);
    const Granularity granularity = group > 0 ? Granularity::groups(group) : Granularity::channel(0);
    const DType dtype = expected["dtype"].text() == "int4" ? dtypes::int4 : dtypes::int2;
    Case c(o, k, quant(dtype, expected["scheme"].text(), granularity));
    c.data.w = Sequence{3}.matrix(o, k);
    const Matrix part = Sequence{5}.matrix(o, k), a = Sequence{7}.matrix(n, k);
    for (size_t i = 0; i < part.v.size(); ++i) c.data.w.v[i] += 0.125 * part.v[i];
    Matrix x(n, k);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) x[i][j] = j == dead ? 0.0 : a[i][j] + a[i][(j + 1) % k] + 2 * a[i][(j + 3) % k];
    Matrix& xx = c.data.sums.xx[0] = multiplied(transposed(x), x);
    for (double& v : xx.v) v /= static_cast<double>(n);
    fit_scales(c.data, c.data.w, {0, o, 0, std::min(c.data.grid.block, k)}, c.state);
    const LayerState to = find_ptq_method("gptq").layer(c.data, c.state, {{}, expected["damp"].get<double>()});
    for (int64_t i = 0; i < o; ++i) {
      std::string codes;
      for (int64_t j = 0; j < k; ++j) codes += (j == 0 ? "" : " ") + std::to_string(static_cast<int>(to.codes[i][j]));
      CHECK(codes == expected["codes"][static_cast<size_t>(i)].text());
      for (int64_t b = 0; b < c.data.blocks(); ++b)
        CHECK(to.scales[static_cast<size_t>(i * c.data.blocks() + b)] ==
              expected["scales"][static_cast<size_t>(b)][static_cast<size_t>(i)].get<double>());
    }
  }
}

TEST_CASE("the target of a layer is the ridge regression of its float outputs") {
  for (const bool biased : {false, true}) {
    Case c(3, 20, kInt4);
    for (double& v : c.data.sums.yx[0].v) v *= 1.25;  // as of inputs that the layers before have made smaller
    for (double& v : c.data.sums.y) v *= 1.25;
    const Matrix target = fitted_target(c.data, c.data.w, biased, 0.01);
    Matrix h = c.data.sums.xx[0];
    const std::vector<double>& x = c.data.sums.x[0];
    double mean = 0;
    for (size_t i = 0; biased && i < 20; ++i)
      for (size_t j = 0; j < 20; ++j) h.v[i * 20 + j] -= x[i] * x[j];
    for (int64_t i = 0; i < 20; ++i) mean += h[i][i] / 20;
    // E (y - v x) x^T = damp mean (v - w)
    for (int64_t o = 0; o < 3; ++o)
      for (int64_t j = 0; j < 20; ++j) {
        double rest = c.data.sums.yx[0][o][j];
        if (biased) rest -= c.data.sums.y[static_cast<size_t>(o)] * x[static_cast<size_t>(j)];
        for (int64_t i = 0; i < 20; ++i) rest -= target[o][i] * h[i][j];
        CHECK(std::abs(rest - 0.01 * mean * (target[o][j] - c.data.w[o][j])) < 1e-9);
      }
  }
  const Case same(3, 20, kInt4);
  const Matrix target = fitted_target(same.data, same.data.w, false, 0.01);
  for (size_t i = 0; i < target.v.size(); ++i) CHECK(std::abs(target.v[i] - same.data.w.v[i]) < 1e-9);
}

TEST_CASE("gptq gives columns of unused inputs the code of 0") {
  const Case c(5, 64, kInt4, /*dead=*/17);
  const LayerState to = find_ptq_method("gptq").layer(c.data, c.state, {});
  for (int64_t o = 0; o < 5; ++o) CHECK(to.codes[o][17] == 0);
  CHECK(to.codes.v == reference_codes(c, c.state, 0.01).v);
  CHECK(total(output_errors(c.data, to)) < total(output_errors(c.data, c.state)));
}

TEST_CASE("gptq fits the scales of a group to what its columns have become") {
  for (const int64_t k : {32, 96, 127, 128, 129, 160, 300}) {
    CAPTURE(k);
    const Case c(7, k, kInt2Groups);
    const LayerState to = find_ptq_method("gptq").layer(c.data, c.state, {});
    for (int64_t o = 0; o < 7; ++o) CHECK(to.scales[c.data.scale_of(o, 0)] == c.state.scales[c.data.scale_of(o, 0)]);
    if (k > 64) CHECK(to.scales != c.state.scales);
    CHECK(total(output_errors(c.data, to)) < total(output_errors(c.data, c.state)));
  }
}

TEST_CASE("gptq of groups of channels is that of each group alone") {
  const Case both(6, 40, kInt4, -1, 2);
  const LayerState to = find_ptq_method("gptq").layer(both.data, both.state, {});
  const Case one(6, 40, kInt4);
  CHECK(to.codes.v == reference_codes(one, both.state, 0.01).v);
  const Case groups(6, 96, kInt2Groups, -1, 2), whole(6, 96, kInt2Groups);
  const LayerState a = find_ptq_method("gptq").layer(groups.data, groups.state, {});
  const LayerState b = find_ptq_method("gptq").layer(whole.data, whole.state, {});
  CHECK(a.codes.v == b.codes.v);
  CHECK(a.scales == b.scales);
}

TEST_CASE("clip finds the multiple of the scale with the least error in each row") {
  for (const auto& [spec, first, last] : {std::tuple{kInt4, 20, 130}, std::tuple{kTernary, 40, 260}}) {
    Case c(5, 50, spec);
    const LayerState to = find_ptq_method("clip").layer(c.data, c.state, {});
    for (int64_t o = 0; o < 5; ++o) {
      double least = 1e300, best = 0;
      for (int p = first; p <= last; ++p) {
        const auto s = static_cast<double>(static_cast<float>(c.state.scales[static_cast<size_t>(o)] * p / 100.0));
        double error = 0;
        for (int64_t k = 0; k < 50; ++k) {
          const double q = std::clamp(std::nearbyint(c.data.w[o][k] / s), static_cast<double>(c.data.grid.lo),
                                      static_cast<double>(c.data.grid.hi));
          error += c.data.sums.xx[0][k][k] * (s * q - c.data.w[o][k]) * (s * q - c.data.w[o][k]);
        }
        if (error < least) least = error, best = s;
      }
      CHECK(to.scales[static_cast<size_t>(o)] == best);
    }
    CHECK(to.searched);
  }
}

TEST_CASE("refit finds the scales of least error for the codes") {
  for (const QuantSpec& spec : {kTernary, kInt2Groups}) {
    const Case c(4, 96, spec);
    const LayerState to = find_ptq_method("refit").layer(c.data, c.state, {});
    CHECK(to.codes.v == c.state.codes.v);
    const double least = total(output_errors(c.data, to));
    CHECK(least < total(output_errors(c.data, c.state)));
    for (size_t i = 0; i < to.scales.size(); ++i)
      for (const double factor : {0.99, 1.01}) {
        LayerState other = to;
        other.scales[i] *= factor;
        CHECK(total(output_errors(c.data, other)) > least);
      }
  }
}

TEST_CASE("bias gives each output the mean of the float layer") {
  const Case c(4, 30, kTernary);
  const LayerState to = find_ptq_method("bias").layer(c.data, c.state, {});
  for (int64_t o = 0; o < 4; ++o) {
    double mean = 0;
    for (int64_t i = 0; i < c.x.rows; ++i) {
      mean += c.y[i][o] - to.bias[static_cast<size_t>(o)];
      for (int64_t k = 0; k < 30; ++k) mean -= value_of(c.data, to, o, k) * c.x[i][k];
    }
    CHECK(std::abs(mean / static_cast<double>(c.x.rows)) < 1e-5);
  }
  CHECK(total(output_errors(c.data, to)) < total(output_errors(c.data, c.state)));
}

TEST_CASE("methods say which layers they do not fit") {
  Case wide(1, 4, kInt4);
  wide.data.w = Matrix(1, 8193);
  CHECK(find_ptq_method("gptq").refuses(wide.data, wide.state) == "it has 8193 inputs, more than 8192");
  wide.data.w = Matrix(1, 8192);
  CHECK(find_ptq_method("gptq").refuses(wide.data, wide.state).empty());
  Case no_bias(2, 4, kInt4);
  no_bias.state.bias.clear();
  CHECK(find_ptq_method("bias").refuses(no_bias.data, no_bias.state) == "it has no bias");
  const Case offsets(2, 4, quant(dtypes::uint4, "minmax_offset", Granularity::channel(0)));
  CHECK(find_ptq_method("clip").refuses(offsets.data, offsets.state) == "its codes have zero points or offsets");
  const Case shared(2, 4, quant(dtypes::int4, "absmax", Granularity::tensor()));
  CHECK(find_ptq_method("refit").refuses(shared.data, shared.state) == "its rows share a scale");
  Case pow2(2, 4, kInt4);
  pow2.data.grid.spec.pow2 = true;
  CHECK(find_ptq_method("refit").refuses(pow2.data, pow2.state) == "its scales are powers of two");
}

TEST_CASE("methods give the same codes with any number of threads") {
  struct Threads {
    int before = num_threads();
    ~Threads() { set_num_threads(before); }
  } const restoring;
  for (const QuantSpec& spec : {kInt4, kInt2Groups}) {
    std::vector<LayerState> all;
    for (const int threads : {1, 2, 7}) {
      set_num_threads(threads);
      const Case c(33, 300, spec);
      LayerState s = c.state;
      for (const char* name : {"clip", "gptq", "refit", "bias"}) s = find_ptq_method(name).layer(c.data, s, {});
      all.push_back(s);
    }
    for (const LayerState& s : all) {
      CHECK(s.codes.v == all[0].codes.v);
      CHECK(s.scales == all[0].scales);
      CHECK(s.bias == all[0].bias);
    }
  }
}

TEST_CASE("lists of methods are checked") {
  CHECK(contains(error_of([] { check_ptq({{"gtpq"}}); }), "unknown method 'gtpq'. Did you mean 'gptq'?"));
  CHECK(contains(error_of([] { check_ptq({{"bias", "gptq", "bias"}}); }), "method bias is listed twice"));
  for (const double damp : {0.0, -1.0, 1.5, 1e-7, std::nan("")})
    CHECK(contains(error_of([&] { check_ptq({{"gptq"}, damp}); }), "expected 0.000001 to 1"));
  CHECK(error_of([] { check_ptq({{"clip", "gptq", "refit", "bias", "norms"}, 1.0}); }).empty());
}
