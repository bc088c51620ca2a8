// Metric `sure_accuracy`: percentage of samples whose true class has at least the given softmax probability.
#include <algorithm>
#include <cmath>

#include "bitgrad/task/metric.h"
#include "parts.h"

using namespace bitgrad;

namespace rings {
namespace {

double sure(const Tensor& outputs, const Tensor& target, double probability) {
  const int64_t classes = outputs.cols();
  double hits = 0;
  for (int64_t r = 0; r < outputs.rows(); ++r) {
    const float* const row = outputs.as<float>() + r * classes;
    const double of_class = row[target.as<int32_t>()[r]];
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - of_class);
    hits += 1.0 / sum >= probability ? 1 : 0;
  }
  return hits;
}

}  // namespace

void register_the_metric() {
  Metric metric;
  metric.name = "sure_accuracy";
  metric.doc = "percent of the samples whose class has at least this probability";
  metric.keys = {{.name = "probability",
                  .type = Key::Type::kNumber,
                  .range = "(0, 1]",
                  .standard = "0.9",
                  .doc = "that the class must have"}};
  metric.fits = [](const MetricTask& task) { return task.target.classes > 0 && task.target.shape.rank() == 0; };
  metric.measure = [](const Attributes& keys) {
    return [probability = keys.number("probability")](const Tensor& outputs, const Tensor& target) {
      return sure(outputs, target, probability);
    };
  };
  metric.value = [](const MetricTask&, const StepResult& sums) {
    return 100.0 * sums.measured.at("sure_accuracy") / static_cast<double>(sums.counted);
  };
  register_metric(std::move(metric));
}

}  // namespace rings
