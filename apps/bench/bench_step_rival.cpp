#include "bench_step.h"

#if BITGRAD_WITH_ONEDNN
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "shared/measure.h"
#include "shared/onednn.h"
#endif

namespace bitgrad::bench {

#if BITGRAD_WITH_ONEDNN
namespace {

using onednn::Number;

// The inputs and results of a step, in fp32.
struct Layer {
  int64_t batch, in, out;
  bool input_gradient;
  Bytes x, gy, y, gx, w, gw, m, v;

  Layer(int64_t n, int64_t i, int64_t o, bool gradient)
      : batch(n),
        in(i),
        out(o),
        input_gradient(gradient),
        x(n * i * 4),
        gy(n * o * 4),
        y(n * o * 4),
        gx(gradient ? n * i * 4 : 0),
        w(o * i * 4),
        gw(o * i * 4),
        m(o * i * 4),
        v(o * i * 4) {
    std::mt19937 rng(1);
    const auto fill = [&](Bytes& t, int64_t count, float size) {
      for (int64_t k = 0; k < count; ++k) t.floats()[k] = (static_cast<float>(rng() % 2000) / 1000 - 0.9995f) * size;
    };
    fill(x, n * i, 1.5f);
    fill(gy, n * o, 0.01f);
    fill(w, o * i, 1.0f);
  }
};

// 0: signs, or values that are not quantized.
int largest_code(DType dtype) {
  return dtype.is_float() || dtype.kind() == DTypeKind::kSign ? 0 : static_cast<int>(dtype.info().qmax);
}

// The products of one layer, with operands of type T: float, or uint16_t for bf16.
template <typename T>
struct LayerStep {
  static constexpr Number kNumber = sizeof(T) == 4 ? Number::kF32 : Number::kBf16;
  std::shared_ptr<Layer> layer;
  Bytes x, w, gy;  // quantized; gy: rounded to bf16
  std::function<void()> forward, gx, gw, gw_add;

  LayerStep(std::shared_ptr<Layer> l, bool accumulate, const LayerKind& kind)
      : layer(std::move(l)),
        x(layer->batch * layer->in * static_cast<int64_t>(sizeof(T))),
        w(layer->out * layer->in * static_cast<int64_t>(sizeof(T))),
        gy(sizeof(T) == 2 ? layer->batch * layer->out * 2 : 0) {
    const Layer& l0 = *layer;
    void* g = gradient();
    const auto make = [](int64_t m, int64_t n, int64_t k, bool ak, bool bk, bool add, void* a, void* b, void* c) {
      return onednn::fastest_product({m, n, k, kNumber, kNumber, Number::kF32, ak, bk, add}, a, b, c);
    };
    void* const xs = kind.activations.is_float() ? layer->x.data() : x.data();
    void* const ws = kind.weights.is_float() ? layer->w.data() : w.data();
    forward = make(l0.batch, l0.out, l0.in, false, false, false, xs, ws, layer->y.data());
    if (l0.input_gradient) gx = make(l0.batch, l0.in, l0.out, false, true, false, g, ws, layer->gx.data());
    gw = make(l0.out, l0.in, l0.batch, true, true, false, g, xs, layer->gw.data());
    if (accumulate) gw_add = make(l0.out, l0.in, l0.batch, true, true, true, g, xs, layer->gw.data());
  }
  bool possible() const { return forward && gw && (gx || !layer->input_gradient); }
  void* gradient() { return sizeof(T) == 2 ? gy.data() : layer->gy.data(); }
  T* numbers(Bytes& bytes) { return static_cast<T*>(bytes.data()); }
};

template <typename T>
class Step final : public FakeQuantizedStep {
 public:
  Step(const Case& what, const Options& options, const std::vector<std::shared_ptr<Layer>>& layers)
      : what_(what), options_(options), base_(time_base(options.threads)) {
    for (const auto& layer : layers)
      layers_.push_back(std::make_unique<LayerStep<T>>(layer, options.accumulate > 1, what.layer));
  }

  bool possible() const {
    return std::all_of(layers_.begin(), layers_.end(), [](const auto& l) { return l->possible(); });
  }
  void step() override {
    if (!what_.layer.weights.is_float())
      part("quantize weights", [&] {
        for (auto& l : layers_)
          sweeps::fake_quantize(l->layer->out, l->layer->in, largest_code(what_.layer.weights), l->layer->w.floats(),
                                l->numbers(l->w));
      });
    for (int64_t i = 0; i < options_.accumulate; ++i) microbatch(i > 0);
    part("update", [&] { update(); });
  }
  const std::map<std::string, std::vector<double>>& parts() const override { return parts_; }

 private:
  template <typename F>
  void part(const char* name, F&& f) {
    const double start = now_ns(base_);
    f();
    parts_[name].push_back(now_ns(base_) - start);
  }

  void microbatch(bool add) {
    const int qmax = largest_code(what_.layer.activations);
    if (!what_.layer.activations.is_float())
      part("quantize activations", [&] {
        for (auto& l : layers_)
          sweeps::fake_quantize(l->layer->batch, l->layer->in, qmax, l->layer->x.floats(), l->numbers(l->x));
      });
    part("forward", [&] {
      for (auto& l : layers_) l->forward();
    });
    if (sizeof(T) == 2)
      part("gradient to bf16", [&] {
        for (auto& l : layers_) sweeps::to_bf16(l->layer->batch * l->layer->out, l->layer->gy.floats(), l->gy.halves());
      });
    part("gx", [&] {
      for (auto& l : layers_) {
        if (!l->layer->input_gradient) continue;
        l->gx();
        if (qmax == 0) sweeps::clip_mask(l->layer->batch * l->layer->in, l->layer->x.floats(), l->layer->gx.floats());
      }
    });
    part("gw", [&] {
      for (auto& l : layers_) (add ? l->gw_add : l->gw)();
    });
  }

  void update() {
    ++steps_;
    const double samples = static_cast<double>(what_.batch * options_.accumulate);
    sweeps::AdamStep adam{1e-4f, static_cast<float>(1 / samples), static_cast<float>(1 / (1 - std::pow(0.9, steps_))),
                          static_cast<float>(1 / (1 - std::pow(0.999, steps_)))};
    if (options_.norm_clip) {
      double sum = 0;
      for (auto& l : layers_) sum += sweeps::sum_of_squares(l->layer->out * l->layer->in, l->layer->gw.floats());
      const double norm = std::sqrt(sum) / samples;
      if (norm > 1) adam.factor /= static_cast<float>(norm);
    }
    for (auto& l : layers_)
      sweeps::adam(l->layer->out * l->layer->in, adam, l->layer->gw.floats(), l->layer->w.floats(),
                   l->layer->m.floats(), l->layer->v.floats());
  }

  Case what_;
  Options options_;
  TimeBase base_;
  std::vector<std::unique_ptr<LayerStep<T>>> layers_;
  std::map<std::string, std::vector<double>> parts_;
  int64_t steps_ = 0;
};

}  // namespace

RivalSteps make_rivals(const Case& what, const Options& options) {
  if (!options.rivals) return {};
  onednn::set_threads(options.threads);
  std::vector<std::shared_ptr<Layer>> layers;
  for (size_t i = 0; i + 1 < what.widths.size(); ++i)
    layers.push_back(
        std::make_shared<Layer>(what.batch, what.widths[i], what.widths[i + 1], what.net.empty() || i > 0));
  const auto make = [&]<typename T>(std::unique_ptr<FakeQuantizedStep>& out) {
    auto step = std::make_unique<Step<T>>(what, options, layers);
    if (step->possible()) out = std::move(step);
  };
  RivalSteps steps;
  make.operator()<float>(steps.fp32);
  if (!what.layer.weights.is_float()) make.operator()<uint16_t>(steps.bf16);
  return steps;
}
#else
RivalSteps make_rivals(const Case&, const Options&) { return {}; }
#endif

}  // namespace bitgrad::bench
