// Transposed codes that backward products in int8 read: who makes them on the (emulated) device, and equal bits.
#include "bitgrad/ops/ops.h"
#include "cuda/counted.h"
#include "kernels/pack.h"
#include "ops/product/transposed.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

TEST_CASE("quantize writes transposed codes of every scheme from one read, with masks and draws") {
  const RandomStream draws{5, Purpose::kActivation, 3, 1};
  std::vector<QuantSpec> specs{binary(Granularity::token()), binary(Granularity::tensor(), false),
                               scheme("affine", dtypes::uint8, Granularity::token()),
                               scheme("absmax", dtypes::int8, Granularity::channel(1)),
                               scheme("codebook", dtypes::nf4, Granularity::tensor())};
  specs.push_back(specs[2]);
  specs.back().rounding = Rounding::kStochastic;
  for (const Shape& shape : {Shape{1, 5}, Shape{65, 130}, Shape{0, 5}, Shape{5, 0}})
    for (const QuantSpec& spec : specs) {
      INFO(spec.scheme << ' ' << shape);
      const Counted together("quantize_transposed_cuda");
      CHECK(device_difference([&] {
              Tape tape;
              AccumulateSink sink;
              QuantizeOpOptions options;
              options.sr = &draws;
              options.transposed = true;
              const Var y = quantize(tape.leaf(here(host_numbers(shape, 1)), &sink, dtypes::fp32), spec, options);
              tape.backward({y}, {here(host_numbers(shape, 2))});
              return Results{y.value(), transposed_codes(y.value()), sink.grad()};
            }) == "");
      CHECK(together.now() == (shape.numel() > 0 && spec.dtype != dtypes::nf4 ? 1 : 0));
    }
}

TEST_CASE("learned codes come transposed too, and gW keeps them alone") {
  const QuantSpec spec = scheme("lsq", dtypes::uint8, Granularity::tensor());
  const Tensor x = host_numbers({64, 48}, 1, 2), w = host_numbers({32, 48}, 2);
  ProductModes modes;
  modes.gw = ProductMode::kInt8;
  QuantizeOpOptions options;
  options.transposed = true;
  CHECK(device_difference([&] {
          Tape tape;
          AccumulateSink gx, gw, gs;
          int64_t canonical = 0, transposed = 0;
          tape.set_saved_hook([&](const Tensor& t) {
            canonical += t.dtype() == dtypes::uint8 && t.layout() == layouts::canonical;
            transposed += t.layout() == layouts::transposed;
            return t;
          });
          const Var step = tape.leaf(here(Tensor::full({1}, dtypes::fp32, 0.25)), &gs, dtypes::fp32);
          const Var codes = quantize_learned(tape.leaf(here(x), &gx, dtypes::fp32), spec, {step}, options);
          const Var y = linear(codes, tape.leaf(here(w), &gw, dtypes::fp32), {}, modes);
          tape.backward({y}, {here(host_numbers(y.shape(), 3, 0.1))});
          CHECK(canonical == 0);
          CHECK(transposed == 1);
          return Results{y.value(), gx.grad(), gw.grad(), gs.grad()};
        }) == "");
}

TEST_CASE("products of backward are the same for any order of codes") {
  ProductModes modes;
  modes.gx = modes.gw = ProductMode::kInt8;
  for (const auto& [n, i, o] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {9, 70, 5}, {128, 64, 96}, {130, 65, 33}})
    for (const bool zeros : {false, true})
      for (const DType dtype : {dtypes::int8, dtypes::bint1, dtypes::uint4}) {
        if (zeros && dtype == dtypes::bint1) continue;
        const Granularity g = n % 2 == 0 ? Granularity::channel(1) : Granularity::token();
        INFO(g << ' ' << n << ' ' << i << ' ' << o << ' ' << dtype << ' ' << zeros);
        const auto codes = [&](int64_t rows, uint64_t seed) {
          return with_scales(host_codes({rows, i}, dtype, seed), g, zeros);
        };
        const auto run = [&, n = n, o = o](bool transposed) {
          Tape tape;
          AccumulateSink gx, gw;
          const auto leaf = [&](const Tensor& host, AccumulateSink& sink) {
            Tensor t = here(host);
            if (!transposed) return tape.leaf(t, &sink, dtypes::fp32);
            const Tensor other =
                Tensor::empty_layout(t.shape(), t.dtype(), layouts::transposed, MemoryKind::kWorkspace);
            pack({t.dtype(), t.rows(), t.cols(), t.data(), t.stride(), layouts::transposed, other.data()});
            t = t.clone(MemoryKind::kActivation);
            t.attach_layout(other);
            return tape.leaf(t, &sink, dtypes::fp32);
          };
          const Var y = linear(leaf(codes(n, 1), gx), leaf(codes(o, 2), gw), {}, modes);
          tape.backward({y}, {here(host_numbers({n, o}, 3, 0.1))});
          return Results{y.value(), gx.grad(), gw.grad()};
        };
        CHECK(device_difference([&] { return run(true); }) == "");
        const StrictBits strict;
        const Results plain = run(false), other = run(true);
        for (size_t k = 0; k < plain.size(); ++k) CHECK(difference(plain[k], other[k]) == "");
      }
}

LayerSpec int8_linear(int64_t out, const QuantSpec& weight) {
  LayerSpec spec = layer("linear", out);
  spec.weight.quant = weight;
  spec.product.gx = spec.product.gw = ProductMode::kInt8;
  return spec;
}

// Plans for 64 rows, trains two microbatches and evaluates.
Results train(const std::shared_ptr<Sequential>& model, int64_t features) {
  StepState state;
  state.seed = 11;
  model->initialize(kModelRoot, state);
  Form meta;
  meta.samples = 64;
  meta.sample = {features};
  model->plan(meta);
  const Tensor x = host_numbers({64, features}, 1);
  Results out;
  for (; state.microbatch < 2; ++state.microbatch) {
    Tape tape;
    const Var y = (*model)(Var(here(x)));
    tape.backward({y}, {here(host_numbers(y.shape(), 5, 0.1))});
    out.push_back(y.value());
  }
  for (Parameter* p : model->parameters()) {
    out.push_back(p->value());
    out.push_back(p->grad());
  }
  state.training = false;
  const NoGrad none;
  out.push_back((*model)(Var(here(x))).value());
  return out;
}

TEST_CASE("layers with gradients of int8 products plan transposed codes on a device, and nothing is transposed twice") {
  const QuantSpec tokens = scheme("absmax", dtypes::int8, Granularity::token()),
                  rows = scheme("absmax", dtypes::int8, Granularity::channel(0));
  const std::vector<LayerSpec> layers{quantize_layer(tokens), int8_linear(96, rows), layer("relu"),
                                      quantize_layer(tokens), int8_linear(80, rows)};
  {
    const DeviceGuard guard(gpu());
    REQUIRE(detail::prefers_transposed(dtypes::int8, 96, 128, 64, true));  // gW of the first
    REQUIRE(detail::prefers_transposed(dtypes::int8, 64, 96, 80, false));  // gX of the second
    REQUIRE_FALSE(detail::prefers_transposed(dtypes::int8, 96, 0, 64, true));
    REQUIRE_FALSE(detail::prefers_transposed(dtypes::fp32, 96, 128, 64, true));
  }
  REQUIRE_FALSE(detail::prefers_transposed(dtypes::int8, 96, 128, 64, true));  // the CPU
  std::vector<size_t> planned;
  const Counted together("quantize_transposed_cuda"), transposed("transpose_codes_cuda");
  CHECK(device_difference([&] {
          const auto model = make_sequential(layers, 128);
          Results out = train(model, 128);
          for (const Parameter* p : model->parameters())
            planned.push_back(p->value().in_layout(layouts::transposed).defined() ? 1 : 0);
          return out;
        }) == "");
  // The first layer's input is data, which wants no gradient.
  CHECK(planned == std::vector<size_t>{0, 0, 0, 1});
  CHECK(together.now() == 4);  // two quantizers, two microbatches; none in the evaluation
  // The second weight when it was planned; gy as A of gW in the first layer, in two microbatches. In the second layer,
  // which wants gX too, it is made turned.
  CHECK(transposed.now() == 1 + 2);
}

TEST_CASE("codes that dropout changes, that nobody trains on, or that are floats to gW, are not made transposed") {
  const QuantSpec tokens = scheme("absmax", dtypes::int8, Granularity::token()),
                  rows = scheme("absmax", dtypes::int8, Granularity::channel(0));
  LayerSpec floats = int8_linear(96, rows), frozen = int8_linear(96, rows);
  floats.product.gw = ProductMode::kBf16;
  frozen.weight.frozen = true;
  const std::vector<std::vector<LayerSpec>> nets{{quantize_layer(tokens), layer("dropout"), int8_linear(96, rows)},
                                                 {quantize_layer(tokens), floats},
                                                 {quantize_layer(tokens), frozen, layer("batch_norm")}};
  for (const std::vector<LayerSpec>& net : nets) {
    const Counted together("quantize_transposed_cuda");
    CHECK(device_difference([&] { return train(make_sequential(net, 128), 128); }) == "");
    CHECK(together.now() == 0);
  }
}

TEST_CASE("the layer that quantizes its input at run time makes it in both orders for gW alone") {
  const Tensor x = host_numbers({64, 128}, 1);
  const Tensor w = with_scales(host_codes({96, 128}, dtypes::int8, 2), Granularity::channel(0));
  for (const bool train : {true, false}) {
    const Counted together("quantize_transposed_cuda");
    CHECK(device_difference([&] {
            Tape tape;
            AccumulateSink gx, gw;
            DynamicLinearOptions options;
            const Var weight = train ? tape.leaf(here(w), &gw, dtypes::fp32) : Var(here(w));
            const Var y = quantized_linear_dynamic(tape.leaf(here(x), &gx, dtypes::fp32), weight, {}, options);
            tape.backward({y}, {here(host_numbers(y.shape(), 3, 0.1))});
            return Results{y.value(), gx.grad(), gw.grad()};
          }) == "");
    CHECK(together.now() == (train ? 1 : 0));
  }
}

}  // namespace
