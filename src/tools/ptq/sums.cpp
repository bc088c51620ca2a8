// Sums over samples of what a layer reads in the quantized model and gives in the float model.
#include <algorithm>
#include <cmath>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/inference.h"
#include "nn/activation_quantizer.h"
#include "tools/norm_statistics.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

// Windows of images as rows; of a linear layer the rows themselves.
struct Windows {
  std::optional<Conv2dOptions> conv = {};
  int64_t height = 1, width = 1, channels = 0;  // of an image
  std::array<int64_t, 2> out{1, 1};

  int64_t per_image() const { return conv ? out[0] * out[1] : 1; }
  // The values that window `m` of `x` holds of group `g`.
  void read(const std::vector<float>& x, int64_t m, int64_t g, int64_t k, double* to) const {
    if (!conv) {
      for (int64_t i = 0; i < k; ++i) to[i] = static_cast<double>(x[static_cast<size_t>(m * k + i)]);
      return;
    }
    const Conv2dOptions& o = *conv;
    const int64_t image = m / per_image(), oy = m % per_image() / out[1], ox = m % out[1], part = channels / o.groups;
    for (int64_t ky = 0; ky < o.kernel[0]; ++ky)
      for (int64_t kx = 0; kx < o.kernel[1]; ++kx, to += part) {
        const int64_t y = oy * o.stride[0] + ky * o.dilation[0] - o.padding[0],
                      z = ox * o.stride[1] + kx * o.dilation[1] - o.padding[1];
        const bool inside = y >= 0 && y < height && z >= 0 && z < width;
        const int64_t at = ((image * height + y) * width + z) * channels + g * part;
        for (int64_t i = 0; i < part; ++i)
          to[i] = inside ? static_cast<double>(x[static_cast<size_t>(at + i)]) : static_cast<double>(o.pad_value);
      }
  }
};

Windows windows_of(Learner& reference, const std::string& owner, const Quantizable& slot) {
  Windows w;
  if (slot.kind() != Quantizable::Kind::kConv) return w;
  Module& module = *reference.model().find(std::string_view(owner).substr(reference.model().path().size() + 1));
  const Form form = *module.input_form();
  inference::Graph graph(form);
  const inference::Node& node = graph[module.lower(graph, 0)];
  w.conv = std::get<inference::Product>(node.operation).conv;
  w.height = form.sample[0];
  w.width = form.sample[1];
  w.channels = form.sample.rank() == 2 ? 1 : form.sample[2];
  w.out = conv2d_output(w.height, w.width, *w.conv);
  return w;
}

// Whether row m of the samples is among the `share` of them that are kept: a sequence that fills [0, 1) evenly.
bool kept(int64_t m, double share) {
  const double x = static_cast<double>(m) * 0.6180339887498949;
  return x - std::floor(x) < share;
}

struct Collector {
  LayerSums& sums;
  const Windows& windows;
  int64_t k, o, groups;
  int64_t seen = 0;
  double share = 1;

  void add(const std::vector<float>& x, const std::vector<float>& y) {
    const int64_t rows = static_cast<int64_t>(y.size()) / o, part = o / groups;
    std::vector<int64_t> chosen;
    for (int64_t m = 0; m < rows; ++m)
      if (kept(seen + m, share)) chosen.push_back(m);
    seen += rows;
    const auto n = static_cast<int64_t>(chosen.size());
    sums.rows += n;
    for (int64_t g = 0; g < groups; ++g) {
      Matrix in(n, k), out(n, part);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t m = chosen[static_cast<size_t>(i)];
        windows.read(x, m, g, k, in[i]);
        for (int64_t j = 0; j < part; ++j)
          out[i][j] = static_cast<double>(y[static_cast<size_t>(m * o + g * part + j)]);
      }
      add(in, out, static_cast<size_t>(g), part);
    }
  }
  void add(const Matrix& in, const Matrix& out, size_t g, int64_t part) {
    const auto all = [](const Matrix& m) { return block_of(m, 0, m.rows, 0, m.cols); };
    add_product(1.0, all(in), all(in), block_of(sums.xx[g], 0, k, 0, k));
    add_product(1.0, all(out), all(in), block_of(sums.yx[g], 0, part, 0, k));
    for (int64_t i = 0; i < in.rows; ++i) {
      for (int64_t j = 0; j < k; ++j) sums.x[g][static_cast<size_t>(j)] += in[i][j];
      for (int64_t j = 0; j < part; ++j) {
        const auto at = g * static_cast<size_t>(part) + static_cast<size_t>(j);
        sums.y[at] += out[i][j];
        sums.yy[at] += out[i][j] * out[i][j];
      }
    }
  }
  void divide() const {
    const double n = static_cast<double>(sums.rows);
    for (auto* matrices : {&sums.xx, &sums.yx})
      for (Matrix& m : *matrices)
        for (double& v : m.v) v /= n;
    for (auto& x : sums.x)
      for (double& v : x) v /= n;
    for (auto* of : {&sums.y, &sums.yy})
      for (double& v : *of) v /= n;
  }
};

}  // namespace

LayerSums collect_sums(Learner& quantized, Learner& reference, const Module::QuantizableAt& at, int64_t groups,
                       std::span<const SampleBatch> samples, int64_t rows) {
  const std::string& owner = at.slot->owner().path();
  const std::string input = at.slot->input_quantizer() ? at.slot->input_quantizer()->path() : "";
  const Windows windows = windows_of(reference, owner, *at.slot);
  const int64_t o = at.slot->weight().shape().rows(), k = at.slot->weight().shape().cols();
  LayerSums sums;
  for (int64_t g = 0; g < groups; ++g) {
    sums.xx.emplace_back(k, k);
    sums.yx.emplace_back(o / groups, k);
    sums.x.emplace_back(static_cast<size_t>(k));
  }
  sums.y.resize(static_cast<size_t>(o));
  sums.yy = sums.y;
  Collector collector{sums, windows, k, o, groups};
  int64_t all = 0;
  for (const SampleBatch& s : samples) all += s.x.shape()[0];
  for (const SampleBatch& batch : samples) {
    Tensor in, codes, out;
    predict_with(quantized, batch.x, [&](const std::string& path, const Tensor& x, const Tensor& y) {
      if (path == owner) in = x;
      if (!input.empty() && path == input) codes = y;
    });
    predict_with(reference, batch.x, [&](const std::string& path, const Tensor&, const Tensor& y) {
      if (path == owner) out = y;
    });
    if (!in.defined() || !out.defined()) return {};
    const int64_t per_sample = out.numel() / o / batch.x.shape()[0];
    collector.share = std::min(1.0, static_cast<double>(rows) / static_cast<double>(per_sample * all));
    collector.add((codes.defined() ? codes : in).to_vector(), out.to_vector());
  }
  collector.divide();
  return sums;
}

}  // namespace bitgrad::detail
