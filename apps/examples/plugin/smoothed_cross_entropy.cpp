// Loss `smoothed_cross_entropy` (label smoothing: Szegedy et al. 2015, arXiv 1512.00567, section 7): the sum over
// samples of -sum_c q_c log p_c, with p = softmax(z), q = 1 - s + s / C for the class of the sample and s / C for the
// others.
#include <algorithm>
#include <cmath>

#include "bitgrad/autograd/op.h"
#include "bitgrad/task/loss.h"
#include "parts.h"

using namespace bitgrad;

namespace rings {
namespace {

struct SmoothedCrossEntropy {
  static constexpr std::string_view kName = "smoothed_cross_entropy";
  struct Saved {
    Tensor gradient;  // p - q, fp32
  };
  static Tensor forward(Saved& saved, std::span<const Tensor> in, const Tensor& target, double smoothing) {
    const Tensor z = in[0];
    const int64_t classes = z.cols();
    require(target.numel() == z.rows(), kName, "targets: got ", target, ", expected a class for each row of ", z);
    const Tensor gradient = Tensor::empty(z.shape(), dtypes::fp32);
    const double other = smoothing / static_cast<double>(classes);
    double loss = 0;
    for (int64_t r = 0; r < z.rows(); ++r) {
      const float* const row = z.as<float>() + r * classes;
      const double top = *std::max_element(row, row + classes);
      double sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - top);
      for (int64_t c = 0; c < classes; ++c) {
        const double log_p = row[c] - top - std::log(sum);
        const double q = other + (c == target.as<int32_t>()[r] ? 1.0 - smoothing : 0.0);
        loss -= q * log_p;
        gradient.as<float>()[r * classes + c] = static_cast<float>(std::exp(log_p) - q);
      }
    }
    saved.gradient = keep(gradient);
    return Tensor::scalar(loss, dtypes::fp32);
  }
  static void backward(Saved& saved, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gz = Tensor::empty(saved.gradient.shape(), dtypes::fp32);
    const float factor = static_cast<float>(gy[0].item());
    for (int64_t i = 0; i < gz.numel(); ++i) gz.as<float>()[i] = factor * saved.gradient.as<float>()[i];
    g[0].set_rounded(gz);
  }
};

}  // namespace

void register_the_loss() {
  LossKind kind;
  kind.name = "smoothed_cross_entropy";
  kind.doc = "cross-entropy with part of each target spread over all classes";
  kind.keys = {{.name = "smoothing",
                .type = Key::Type::kNumber,
                .range = "[0, 1)",
                .standard = "0.1",
                .doc = "the part that is spread"}};
  kind.make = [](const Attributes& keys) {
    return [smoothing = keys.number("smoothing")](const Var& outputs, const Tensor& target) {
      return apply<SmoothedCrossEntropy>({outputs}, target, smoothing);
    };
  };
  register_loss(std::move(kind));
}

}  // namespace rings
