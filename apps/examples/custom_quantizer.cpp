// A custom scheme, registered in a few lines without rebuilding the library, and used for training at once, by its
// name, in every layer that accepts a scheme. With absmax a single outlier determines the scale of a whole channel.
// quantile_clip ignores the largest fifth of the values, which pays off with the three codes of int2.
//
//   build/release/bin/custom_quantizer
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "bitgrad/data/loader.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"

using namespace bitgrad;

namespace {

// t = the value that four fifths of abs x do not exceed; s = max(t / qmax, eps); code = clamp(rint(x * (1/s)), -qmax,
// qmax). The kernels compute the codes, and the clip rule of the backward pass follows from the range of the codes.
class QuantileClip final : public Quantizer {
 public:
  std::string_view name() const override { return "quantile_clip"; }

  void check(const QuantSpec& spec, bool) const override {
    const DTypeInfo& info = spec.dtype.info();
    require(info.kind == DTypeKind::kInt && info.qmax > 0, name(), "dtype: got ", spec.dtype,
            ", expected a signed integer, such as int2.");
    const Granularity& g = spec.granularity;
    require(g.kind == Granularity::kTensor || (g.kind == Granularity::kChannel && g.axis == 0), name(),
            "granularity: got ", g, ", expected tensor or channel(0).");
  }

  CodeRange code_range(const QuantSpec& spec) const override {
    const int64_t qmax = spec.dtype.info().qmax;
    return {CodeRule::kInverse, -qmax, qmax};
  }

  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const bool per_tensor = spec.granularity.kind == Granularity::kTensor;
    const int64_t blocks = scale_count(spec.granularity, x.rows(), x.cols());
    const int64_t rows = per_tensor ? x.rows() : 1, stride = x.stride() / static_cast<int64_t>(sizeof(float));
    const float qmax = static_cast<float>(spec.dtype.info().qmax), eps = spec.eps.value_or(0x1p-126f);
    const Tensor scale = Tensor::empty({blocks}, dtypes::fp32, MemoryKind::kQuantState);
    for (int64_t block = 0; block < blocks; ++block) {
      std::vector<float> sizes;
      for (int64_t r = block * rows; r < (block + 1) * rows; ++r)
        for (int64_t c = 0; c < x.cols(); ++c) sizes.push_back(std::fabs(x.as<float>()[r * stride + c]));
      scale.as<float>()[block] = std::max(quantile(sizes) / qmax, eps);
    }
    QuantParams params;
    params.scheme = name();
    params.granularity = spec.granularity;
    params.scale = std::make_shared<const Tensor>(scale);
    return params;
  }

 private:
  static float quantile(std::vector<float>& sizes) {
    if (sizes.empty()) return 0;
    const auto at = sizes.begin() + static_cast<int64_t>((sizes.size() - 1) * 4 / 5);
    std::nth_element(sizes.begin(), at, sizes.end());
    return *at;
  }
};

// linear -> batch_norm -> relu -> quantize -> linear. Both weights and the activations in between use `scheme`.
std::shared_ptr<Sequential> make_model(const std::string& scheme, int64_t features, int64_t classes) {
  LayerSpec linear;
  linear.kind = "linear";
  linear.weight.quant.emplace();
  linear.weight.quant->dtype = dtypes::int2;
  linear.weight.quant->scheme = scheme;
  linear.weight.quant->granularity = Granularity::channel(0);
  LayerSpec batch_norm, relu, quantize;
  batch_norm.kind = "batch_norm";
  relu.kind = "relu";
  quantize.kind = "quantize";
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::int8;
  quantize.activation->spec.scheme = scheme;

  auto model = std::make_shared<Sequential>();
  linear.attributes["out"] = 64;
  linear.attributes["bias"] = false;
  model->append(make_layer(linear, features));
  model->append(make_layer(batch_norm, 64));
  model->append(make_layer(relu, 64));
  model->append(make_layer(quantize, 64));
  linear.attributes["out"] = classes;
  linear.attributes["bias"] = false;
  model->append(make_layer(linear, 64));
  return model;
}

struct Score {
  double loss, percent;
};
// Mean loss and accuracy of the packed weights on `test`.
Score evaluate(Learner& learner, const Dataset& test) {
  Loader loader(test, {.micro = 250, .shuffle = false, .end_epoch = 1});
  StepResult sum;
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    const StepResult r = learner.evaluate(x, {batch.labels, static_cast<size_t>(batch.size)});
    sum.loss += r.loss;
    sum.correct += r.correct;
  }
  const double n = static_cast<double>(test.size());
  return {sum.loss / n, 100.0 * static_cast<double>(sum.correct) / n};
}

bool train(const std::string& scheme, const Dataset& data, const Dataset& test) {
  OptimizerSpec adam;
  adam.name = "adam";
  Learner learner(
      make_model(scheme, data.features(), data.classes()), find_loss("softmax_cross_entropy"), adam,
      {.accumulate = 1, .every = 1}, [](int64_t) { return 5e-3f; }, /*seed=*/1);
  learner.plan(
      {.input = {.sample = {data.features()}}, .outputs = data.classes(), .train_samples = 50, .eval_samples = 250});
  const Score before = evaluate(learner, test);
  Loader loader(data, {.micro = 50, .seed = 1, .end_epoch = 6});
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
  }
  const Score after = evaluate(learner, test);
  std::cout << learner.model().parameters()[0]->value().describe() << '\n';
  std::printf("%-13s loss %.3f before, %.3f after, accuracy %.1f %%\n", scheme.c_str(), before.loss, after.loss,
              after.percent);
  std::fflush(stdout);
  return after.loss < 0.5 * before.loss && after.percent > 60;
}

}  // namespace

int main() {
  register_quantizer(std::make_unique<QuantileClip>());

  DatasetSpec digits;
  digits.format = "digits";
  digits.size = 2000;
  digits.affine = {2, -1};
  const auto data = make_dataset(digits);
  digits.split = "test";
  digits.size = 500;
  const auto test = make_dataset(digits);

  bool fine = train("quantile_clip", *data, *test);
  fine = train("absmax", *data, *test) && fine;
  return fine ? 0 : 1;
}
