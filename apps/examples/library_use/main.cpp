// A custom model, data set and op, with bitgrad as a library.
#include <cmath>
#include <cstdio>

#include "bitgrad/bitgrad.h"

using namespace bitgrad;

namespace {

// Points on two rings around the origin; the label is the ring.
class Rings final : public Dataset {
 public:
  explicit Rings(int64_t size, uint64_t seed) : size_(size), seed_(seed) {}
  std::string name() const override { return "rings"; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return {2}; }
  int64_t classes() const override { return 2; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    const RandomStream draws{seed_, Purpose::kUser, site_id("rings"), 0};
    const auto i = static_cast<uint64_t>(2 * index);
    const double angle = 6.283185307179586 * static_cast<double>(draws.uniform(i));
    *label = static_cast<int32_t>(index % 2);
    const double radius = 0.4 + 0.5 * *label + 0.2 * static_cast<double>(draws.uniform(i + 1));
    x[0] = static_cast<float>(radius * std::cos(angle));
    x[1] = static_cast<float>(radius * std::sin(angle));
  }

 private:
  int64_t size_;
  uint64_t seed_;
};

// y = x^2, with its own backward: gx = 2 x gy.
struct Square {
  static constexpr std::string_view kName = "square";
  struct Saved {
    Tensor x;
  };
  static Tensor forward(Saved& saved, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    require(x.dtype() == dtypes::fp32, kName, "x is ", x, ", expected fp32");
    Tensor y = Tensor::empty(x.shape(), dtypes::fp32);
    for (int64_t i = 0; i < x.numel(); ++i) y.as<float>()[i] = x.as<float>()[i] * x.as<float>()[i];
    saved.x = keep(x);
    return y;
  }
  static void backward(Saved& saved, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    Tensor gx = Tensor::empty(saved.x.shape(), dtypes::fp32);
    for (int64_t i = 0; i < gx.numel(); ++i) gx.as<float>()[i] = 2.0f * saved.x.as<float>()[i] * gy[0].as<float>()[i];
    g[0].set(gx);
  }
};
Var square(const Var& x) { return apply<Square>({x}); }

// classes(square(W x)): W and the last layer have int4 weights.
class RingNet final : public Module {
 public:
  RingNet() : hidden_(make_linear(2, 16, int4())), out_(make_linear(16, 2, int4(), /*bias=*/true)) {
    add_child("hidden", hidden_);
    add_child("out", out_);
  }
  Var forward(const Var& x) override { return out_->forward(square(hidden_->forward(x))); }
  Form plan(const Form& in, PlanRequests& requests) override {
    PlanRequests of_hidden;
    Form out = out_->planned(hidden_->planned(in, requests), of_hidden);
    requests.merge(hidden_->serve(of_hidden));
    return out;
  }

 private:
  static ParameterSpec int4() {
    return {.quant = QuantSpec{.dtype = dtypes::int4, .granularity = Granularity::channel(0)}};
  }
  std::shared_ptr<Module> hidden_, out_;
};

}  // namespace

int main() {
  const Rings data(2000, 1), test(500, 2);
  Learner learner(
      std::make_shared<RingNet>(), find_loss("softmax_cross_entropy"), {.name = "adam"}, {.accumulate = 1, .every = 1},
      [](int64_t) { return 0.02f; }, /*seed=*/1);
  learner.plan(
      {.input = {.sample = {data.features()}}, .outputs = data.classes(), .train_samples = 50, .eval_samples = 250});

  Loader loader(data, {.micro = 50, .seed = 1, .end_epoch = 10});
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
  }

  const double percent = evaluate(learner, test, /*batch=*/250).accuracy;
  std::printf("%s\naccuracy %.1f %%\n", learner.model().parameters()[0]->value().describe().c_str(), percent);
  return percent > 90 ? 0 : 1;
}
