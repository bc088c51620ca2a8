// Ops and layers of images on the (emulated) device: the bits of the CPU.
#include "bitgrad/ops/channels.h"
#include "bitgrad/ops/spatial.h"
#include "cuda/counted.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// y and the gradient of x.
Results both_ways(const std::function<Var(const Var&)>& f, const Tensor& x) {
  AccumulateSink sink;
  Tape tape;
  const Var y = f(tape.leaf(here(x), &sink, dtypes::fp32));
  tape.backward({y}, {here(random_numbers(y.shape(), 5))});
  return {y.value(), sink.grad()};
}
std::string differs(const std::function<Var(const Var&)>& f, const Tensor& x) {
  return device_difference([&] { return both_ways(f, x); });
}

// Numbers of few values, so that maxima tie.
Tensor with_ties(const Shape& shape, DType dtype) {
  const Tensor t = random_numbers(shape, 3, 4);
  std::vector<double> numbers = t.elements();
  for (double& v : numbers) v = std::rint(v);
  return Tensor::from_elements(shape, dtype, numbers);
}

const std::vector<PoolOptions> kPools = {
    {{2, 2}, {2, 2}, {}}, {{3, 2}, {1, 3}, {1, 0, 2, 1}}, {{1, 1}, {2, 2}, {}}, {{9, 9}, {1, 1}, {2, 3, 4, 5}}};
const std::vector<int64_t> kChannels = {1, 5, 63, 64, 65, 130};

LayerSpec with(const std::string& kind, Attributes attributes) {
  LayerSpec spec = layer(kind);
  spec.attributes = std::move(attributes);
  return spec;
}

}  // namespace

TEST_CASE("pools of floats and codes are those of the CPU, on the device") {
  for (const PoolOptions& o : kPools)
    for (const int64_t c : kChannels)
      for (const int64_t n : {0, 3}) {
        const Shape shape{n, 9, 7, c};
        INFO(shape << ", window " << o.size[0] << 'x' << o.size[1]);
        for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
          CHECK(differs([&](const Var& x) { return max_pool(x, o); }, with_ties(shape, dtype)) == "");
          CHECK(differs([&](const Var& x) { return avg_pool(x, o); }, random_numbers(shape, 2, 1, dtype)) == "");
        }
        for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::uint3, dtypes::int4, dtypes::uint8})
          CHECK(differs([&](const Var& x) { return max_pool(x, o); },
                        with_scales(random_codes(shape, dtype, 4), Granularity::channel(1))) == "");
      }
  const PoolOptions large{{17, 16}, {3, 2}, {1, 1, 1, 1}};
  for (const DType dtype : {dtypes::fp32, dtypes::bint1, dtypes::int4}) {
    const Tensor x =
        dtype == dtypes::fp32 ? random_numbers({2, 20, 18, 70}, 1) : random_codes({2, 20, 18, 70}, dtype, 1);
    CHECK(differs([&](const Var& v) { return max_pool(v, large); }, x) == "");
  }
}

TEST_CASE("flatten, global_avg_pool, shortcut_a, prelu and shift are those of the CPU, on the device") {
  for (const int64_t c : kChannels)
    for (const int64_t n : {0, 2}) {
      const Shape shape{n, 4, 3, c};
      INFO(shape);
      for (const DType dtype : {dtypes::bint1, dtypes::int2, dtypes::uint3, dtypes::int8})
        CHECK(differs([](const Var& x) { return flatten(x); }, random_codes(shape, dtype, 4)) == "");
      for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
        const Tensor x = random_numbers(shape, 6, 1, dtype), a = random_numbers({c}, 7);
        CHECK(differs([](const Var& v) { return flatten(v); }, x) == "");
        CHECK(differs([](const Var& v) { return global_avg_pool(v); }, x) == "");
        CHECK(differs([&](const Var& v) { return shortcut_a(v, c + 3, {2, 1}); }, x) == "");
        for (const auto op : {prelu, shift})
          CHECK(device_difference([&] {
                  AccumulateSink sink;
                  Tape tape;
                  const Var y = op(here(x), tape.leaf(here(a), &sink, dtypes::fp32));
                  tape.backward({y}, {here(random_numbers(y.shape(), 5))});
                  Results out = both_ways([&](const Var& v) { return op(v, here(a)); }, x);
                  out.push_back(y.value());
                  out.push_back(sink.grad());
                  return out;
                }) == "");
      }
    }
}

TEST_CASE("batch norm of integers is that of the CPU, on the device") {
  for (const int64_t most : {100, 40000, 5000000})
    for (const Shape& shape : {Shape{1, 3}, Shape{300, 65}, Shape{3, 10, 9, 64}})
      for (const bool per_column : {false, true})
        for (const bool training : {false, true}) {
          INFO(shape << ", up to " << most);
          std::vector<double> q = random_numbers(shape, 3, static_cast<double>(most)).elements();
          for (double& v : q) v = std::rint(v);
          const Tensor x = with_scales(Tensor::from_elements(shape, dtypes::int32, q),
                                       per_column ? Granularity::channel(1) : Granularity::tensor());
          const Tensor gamma = random_numbers({x.cols()}, 1), beta = random_numbers({x.cols()}, 2);
          CHECK(device_difference([&] {
                  NormOptions o;
                  o.training = training;
                  o.running_mean = Tensor::zeros({x.cols()}, dtypes::fp32);
                  o.running_var = Tensor::full({x.cols()}, dtypes::fp32, 2);
                  const Var g = here(gamma), b = here(beta);
                  Results out = both_ways([&](const Var& v) { return batch_norm(v, g, b, o); }, x);
                  out.push_back(o.running_mean);
                  out.push_back(o.running_var);
                  return out;
                }) == "");
        }
}

TEST_CASE(
    "a network of images trains and evaluates on the device as on the CPU, and its norms before signs are fused") {
  const QuantSpec signs = binary({}, false);
  const LayerSpec quantize = quantize_layer(signs);
  const auto conv = [&](int64_t out, Compute compute) {
    LayerSpec spec = with("conv2d", {{"out", out}, {"kernel", int64_t{3}}, {"padding", int64_t{1}}, {"bias", false}});
    spec.weight.quant = signs;
    spec.compute = compute;
    return spec;
  };
  const Attributes two{{"size", int64_t{2}}};
  const std::vector<LayerSpec> layers = {conv(20, Compute::kPacked),
                                         layer("batch_norm"),
                                         quantize,
                                         with("max_pool", two),
                                         conv(24, Compute::kIntegerOut),
                                         layer("batch_norm"),
                                         layer("shift"),
                                         layer("prelu"),
                                         with("avg_pool", two),
                                         quantize,
                                         layer("flatten")};
  for (const bool watched : {false, true}) {
    const Counted fused("normalize_sign_cuda");
    CHECK(device_difference([&] {
            const auto model = make_layers(layers);
            Form in;
            in.samples = 3;
            in.sample = {8, 9, 5};
            model->plan(in);
            StepState state;
            state.seed = 11;
            model->initialize(kModelRoot, state);
            Results out;
            {
              Tape tape;
              const Var y = (*model)(Var(here(random_numbers({3, 8, 9, 5}, 1, 2))));
              tape.backward({y}, {here(random_numbers(y.shape(), 5))});
              out.push_back(y.value());
            }
            for (Parameter* p : model->parameters()) out.push_back(p->grad());
            for (const Module::Buffer& b : model->buffers()) out.push_back(b.tensor);
            state.training = false;
            if (watched) state.on_forward = [](const std::string&, const Tensor&, const Tensor&) {};
            const NoGrad none;
            out.push_back((*model)(Var(here(random_numbers({3, 8, 9, 5}, 2, 2)))).value());
            return out;
          }) == "");
    CHECK(fused.now() == (watched ? 0 : 1));
  }
}
