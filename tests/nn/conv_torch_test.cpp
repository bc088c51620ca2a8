// Trainings of a small convolutional network, in fp32 and with weights and activations of one bit, beside PyTorch in
// float64: 20 steps with SGD and Adam. tests/golden/torch_conv.json, scripts/torch_conv_golden.py.
#include <map>

#include "bitgrad/autograd/op.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/ops/unary.h"
#include "bitgrad/optim/optimizer.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/label_loss.h"
#include "support/torch_conv.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kBatches = 3, kBatch = 6, kSide = 8;

// The largest of 2x2 values, the gradient to the first of equals.
struct LargestOfFour {
  static constexpr std::string_view kName = "largest_of_four";
  struct Saved {
    std::vector<int64_t> from;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Shape& x = in[0].shape();
    const std::vector<double> v = in[0].values();
    std::vector<double> y;
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t oy = 0; oy < x[1] / 2; ++oy)
        for (int64_t ox = 0; ox < x[2] / 2; ++ox)
          for (int64_t c = 0; c < x[3]; ++c) {
            const auto at = [&](int64_t t) { return ((n * x[1] + 2 * oy + t / 2) * x[2] + 2 * ox + t % 2) * x[3] + c; };
            int64_t best = at(0);
            for (int64_t t = 1; t < 4; ++t)
              if (v[static_cast<size_t>(at(t))] > v[static_cast<size_t>(best)]) best = at(t);
            s.from.push_back(best);
            y.push_back(v[static_cast<size_t>(best)]);
          }
    return Tensor::from_elements({x[0], x[1] / 2, x[2] / 2, x[3]}, dtypes::fp32, y);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor gx = Tensor::zeros(g[0].shape(), dtypes::fp32);
    for (size_t i = 0; i < s.from.size(); ++i) gx.as<float>()[s.from[i]] = gy[0].as<float>()[i];
    g[0].set(gx);
  }
};

class SmallNet {
 public:
  SmallNet(bool binary, uint64_t seed) : binary_(binary) {
    const int64_t side = binary ? (kSide - 4) / 2 : kSide / 2;
    const double factor = binary ? 1 : 0.25;
    weight("w1", torch_units(seed, {6, 27}, factor));
    weight("w2", torch_units(seed + 1, {8, 54}, factor));
    weight("w3", torch_units(seed + 2, {10, side * side * 8}, factor));
    for (const auto& [place, width] : {std::pair<std::string, int64_t>{"1", 6}, {"2", 8}, {"3", 1}}) {
      if (place == "3" && !binary) continue;
      add("gamma" + place, Tensor::full({width}, dtypes::fp32, 1), {});
      add("beta" + place, Tensor::zeros({width}, dtypes::fp32), {});
    }
  }

  // Of images [n,8,8,3]: logits [n,10].
  Var forward(const Tensor& images) {
    Conv2dOptions three;
    three.kernel = {3, 3};
    three.padding.fill(binary_ ? 0 : 1);
    QuantSpec codes = quant_spec(dtypes::int8, "fixed");
    codes.scale = 1.0f / 128;
    Var x = binary_ ? quantize(Var(images), codes) : Var(images);
    for (const char* place : {"1", "2"}) {
      const std::string i = place;
      x = conv2d(x, read("w" + i), Var(), three);
      const Shape shape = x.shape();
      x = reshape(batch_norm(reshape(x, {shape.rows(), shape.cols()}), read("gamma" + i), read("beta" + i),
                             running(shape.cols())),
                  shape);
      QuantSpec signs = quant_spec(dtypes::bint1, "binary");
      signs.ste = SteRule::kClip;
      x = binary_ ? quantize(x, signs) : relu(x);
    }
    x = apply<LargestOfFour>({x});
    x = linear(reshape(x, {x.shape()[0], x.value().numel() / x.shape()[0]}), read("w3"));
    return binary_ ? tensor_norm(x, read("gamma3"), read("beta3"), running(1)) : x;
  }

  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> out;
    for (auto& [name, p] : parameters_) out.push_back(p.get());
    return out;
  }
  double squares(const std::string& name) {
    double sum = 0;
    for (const double v : dequantized(*parameters_.at(name)).elements()) sum += v * v;
    return sum;
  }

 private:
  void add(const std::string& name, const Tensor& values, const ParameterSpec& spec) {
    auto p = std::make_unique<Parameter>(values.shape(), spec, name);
    p->initialize(name, 1);
    p->assign(values, 0);
    parameters_[name] = std::move(p);
  }
  void weight(const std::string& name, const Tensor& values) {
    ParameterSpec spec;
    if (binary_) {
      spec.quant = quant_spec(dtypes::bint1, "binary");
      spec.quant->ste = SteRule::kIdentity;
      spec.latent_clamp = 1;
    }
    add(name, values, spec);
  }
  Var read(const std::string& name) { return parameters_.at(name)->read(); }
  NormOptions running(int64_t width) const {
    NormOptions options;
    options.eps = binary_ ? 1e-4f : 1e-5f;
    options.running_mean = Tensor::zeros({width}, dtypes::fp32);
    options.running_var = Tensor::full({width}, dtypes::fp32, 1);
    return options;
  }

  bool binary_;
  std::map<std::string, std::unique_ptr<Parameter>> parameters_;
};

std::vector<int32_t> torch_labels(uint64_t seed) {
  std::vector<int32_t> out;
  for (const double d : torch_draws(seed, kBatches * kBatch, [](uint64_t s) { return double((s >> 33) % 10); }))
    out.push_back(static_cast<int32_t>(d));
  return out;
}

OptimizerSpec torch_optimizer(const std::string& name) {
  OptimizerSpec spec;
  spec.name = name;
  if (name != "sgd") return spec;
  spec.momentum = 0.9f;
  spec.weight_decay = 1e-3f;
  return spec;
}

}  // namespace

TEST_CASE("20 steps of a small convolutional network have PyTorch's losses, in fp32 and of one bit, by SGD and Adam") {
  const Json golden = torch_conv_golden();
  REQUIRE(golden["training"].size() == 4);
  for (const Json& c : golden["training"]) {
    const auto seed = c["seed"].get<uint64_t>();
    const auto binary = c["binary"].get<bool>();
    const auto name = c["optimizer"].get<std::string>();
    const auto losses = c["losses"].get<std::vector<double>>();
    REQUIRE(losses.size() == 20);
    SmallNet net(binary, seed);
    Optimizer optimizer(torch_optimizer(name));
    optimizer.attach(net.parameters());
    const Tensor images = torch_levels(seed + 3, {kBatches * kBatch, kSide, kSide, 3});
    const std::vector<int32_t> labels = torch_labels(seed + 4);
    for (int64_t step = 0; step < 20; ++step) {
      const int64_t first = step % kBatches * kBatch;
      const std::span<const int32_t> of(labels.data() + first, static_cast<size_t>(kBatch));
      Tape tape;
      const Var logits = net.forward(slice(Var(images), 0, first, first + kBatch).value());
      const Var loss = binary ? squared_hinge(logits, of) : label_loss(logits, of);
      INFO(name << (binary ? ", binary" : ", fp32") << ", step " << step);
      const double expected = losses[static_cast<size_t>(step)];
      CHECK(std::fabs(loss.value().item() / kBatch - expected) <= 2e-5 * expected);
      tape.backward(loss);
      const RequantKey key{1, step + 1};
      optimizer.step(name == "sgd" ? 0.05f : 0.01f, kBatch, &key);
    }
    for (const auto& [parameter, squares] : c["squares"].members()) {
      INFO(name << (binary ? ", binary " : ", fp32 ") << parameter);
      CHECK(std::fabs(net.squares(parameter) - squares.get<double>()) <= 2e-5 * squares.get<double>());
    }
  }
}
