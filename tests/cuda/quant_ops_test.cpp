// Quantizing ops and the arithmetic of int32 sums on a device: values, gradients and errors of the CPU.
#include <cmath>

#include "bitgrad/ops/ops.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// y and the gradients of the inputs that are tracked (the first `tracked`).
Results run_op(const std::vector<Tensor>& inputs, size_t tracked,
               const std::function<Var(const std::vector<Var>&)>& op) {
  Tape tape;
  std::vector<AccumulateSink> sinks(inputs.size());
  std::vector<Var> in;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(i < tracked ? tape.leaf(here(inputs[i]), &sinks[i], dtypes::fp32) : Var(here(inputs[i])));
  const Var y = op(in);
  Results out{y.value()};
  if (!y.tracked()) return out;
  tape.backward({y}, {here(host_numbers(y.shape(), 99))});
  for (size_t i = 0; i < tracked; ++i) out.push_back(sinks[i].grad());
  return out;
}

QuantSpec spec_of(const std::string& scheme, DType dtype, const Granularity& g = {}) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.granularity = g;
  return spec;
}

// int32 sums with scales.
Tensor sums(const Shape& shape, const Granularity& g, int size = 3000) {
  const RandomStream draws{5, Purpose::kUser, 3, 0};
  std::vector<double> q(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = static_cast<double>(static_cast<int64_t>(draws.bits32(i) % static_cast<uint32_t>(2 * size)) - size);
  return with_scales(Tensor::from_elements(shape, dtypes::int32, q), g);
}

TEST_CASE("quantize, forward and backward") {
  const Tensor x = host_numbers({6, 70}, 1, 2);
  for (const auto& spec :
       {spec_of("symmetric", dtypes::int4), spec_of("affine", dtypes::uint8, Granularity::token()),
        spec_of("binary", dtypes::bint1), spec_of("dorefa_weight", dtypes::uint4),
        spec_of("standardized_binary", dtypes::bint1, Granularity::token()), spec_of("codebook", dtypes::nf4)})
    for (const bool tanh : {false, true}) {
      QuantSpec s = spec;
      if (tanh && s.scheme == "binary") {
        s.ste = SteRule::kTanh;
        s.alpha = s.alpha_grad = true;
      }
      INFO(s.scheme << ' ' << tanh);
      CHECK(device_difference([&] { return run_op({x}, 1, [&](const auto& v) { return quantize(v[0], s); }); }) == "");
    }
}

TEST_CASE("rule tanh, alone and added to the gradient of another reader") {
  const Tensor x = host_numbers({6, 70}, 1, 2);
  for (const float t : {0.01f, 1.0f, 10.0f}) {
    QuantSpec s = spec_of("binary", dtypes::bint1);
    s.ste = SteRule::kTanh;
    s.ste_t = t;
    INFO(t);
    CHECK(device_difference([&] { return run_op({x}, 1, [&](const auto& v) { return quantize(v[0], s); }); }) == "");
    CHECK(device_difference([&] {
            return run_op({x}, 1, [&](const auto& v) {
              const Var inner = add(v[0], v[0]);
              return mul(dequantize(quantize(inner, s)), inner);
            });
          }) == "");
  }
}

TEST_CASE("quantize_learned, of numbers and of int32 sums") {
  for (const char* scheme : {"lsq", "lsq_plus", "pact"})
    for (const Granularity& g : {Granularity::tensor(), Granularity::channel(1)}) {
      const QuantSpec s = spec_of(scheme, dtypes::uint4, g);
      const int64_t n = g.kind == Granularity::kTensor ? 1 : 70;
      std::vector<Tensor> in{host_numbers({6, 70}, 1, 2)};
      for (const LearnedPart& part : find_quantizer(scheme).learned(s))
        in.push_back(Tensor::full({n}, dtypes::fp32, part.name == "offset" ? -0.25 : 0.375));
      INFO(scheme << " per " << g);
      const auto op = [&](const auto& v) {
        return quantize_learned(v[0], s, std::vector<Var>(v.begin() + 1, v.end()));
      };
      CHECK(device_difference([&] { return run_op(in, in.size(), op); }) == "");
      if (in.size() > 2 || n > 1) continue;
      const Tensor of_sums = sums({6, 70}, {});
      CHECK(device_difference([&] {
              Tape tape;
              AccumulateSink sink;
              const Var y = quantize_learned(Var(here(of_sums)), s, {tape.leaf(here(in[1]), &sink, dtypes::fp32)});
              tape.backward({y}, {here(host_numbers({6, 70}, 99))});
              return Results{y.value(), sink.grad()};
            }) == "");
    }
}

TEST_CASE("quantize_gradient draws the CPU's codes, and lets NaN pass") {
  QuantSpec s = spec_of("dorefa_gradient", dtypes::uint4, Granularity::token());
  s.rounding = Rounding::kStochastic;
  const RandomStream draws{3, Purpose::kGradient, 4, 2};
  for (const bool bad : {false, true})
    CHECK(device_difference([&] {
            Tape tape;
            AccumulateSink sink;
            const Var y = quantize_gradient(tape.leaf(here(host_numbers({4, 33}, 1)), &sink, dtypes::fp32), s, draws);
            Tensor seed = host_numbers({4, 33}, 2);
            if (bad) seed.as<float>()[40] = std::nanf("");
            tape.backward({y}, {here(seed)});
            return Results{sink.grad()};
          }) == "");
}

TEST_CASE("int32 sums: values, relu, requantization") {
  for (const Shape& shape : {Shape{0, 5}, Shape{1, 1}, Shape{5, 64}, Shape{7, 131}})
    for (const Granularity& g : {Granularity::tensor(), Granularity::token(), Granularity::channel(1)}) {
      INFO(shape << " per " << g);
      const Tensor x = sums(shape, g);
      CHECK(device_difference([&] { return run_op({x}, 1, [](const auto& v) { return dequantize(v[0]); }); }) == "");
      CHECK(device_difference([&] { return run_op({x}, 1, [](const auto& v) { return integer_relu(v[0]); }); }) == "");
      for (const DType dtype :
           {dtypes::int8, dtypes::uint8, dtypes::int4, dtypes::int3, dtypes::int5, dtypes::int1, dtypes::int7}) {
        INFO(dtype);
        CHECK(device_difference([&] {
                return run_op({x}, 1, [&](const auto& v) { return requantize_shift(v[0], dtype, 5); });
              }) == "");
        for (const Granularity& to : {Granularity::tensor(), Granularity::token()}) {
          const auto params = with_scales(Tensor::zeros(shape, dtypes::int8), to, true).quant();
          CHECK(device_difference([&] {
                  const auto p =
                      here(
                          Tensor::zeros(shape, dtypes::int8, MemoryKind::kActivation, Device::cpu()).with_quant(params))
                          .quant();
                  return run_op({x}, 1, [&](const auto& v) { return requantize(v[0], dtype, p); });
                }) == "");
        }
      }
    }
}

TEST_CASE("integer_linear with a bias") {
  for (const bool per_channel : {false, true}) {
    const Tensor x = with_scales(host_codes({5, 96}, dtypes::int8, 1), Granularity::tensor());
    const Tensor w = with_scales(host_codes({7, 96}, dtypes::int4, 2),
                                 per_channel ? Granularity::channel(0) : Granularity::tensor());
    const Tensor bias = host_numbers({7}, 3, 50);
    CHECK(device_difference([&] {
            return Results{integer_linear(Var(here(x)), Var(here(w)), Var(here(bias))).value(),
                           integer_linear(Var(here(x)), Var(here(w))).value()};
          }) == "");
    Tensor bad = host_numbers({7}, 3);
    bad.as<float>()[2] = std::nanf("");
    const TwoErrors e = errors_of([&] { integer_linear(Var(here(x)), Var(here(w)), Var(here(bad))); });
    CHECK(contains(e.on_cpu, "bias[2] is nan"));
    CHECK(e.on_gpu == e.on_cpu);
  }
}

TEST_CASE("requantization refuses scales that are not positive numbers") {
  const Tensor x = sums({2, 3}, {});
  QuantParams p;
  p.scheme = "symmetric";
  const TwoErrors e = errors_of([&] {
    QuantParams q = p;
    q.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 0.0));
    requantize(Var(here(x)), dtypes::int8, std::make_shared<const QuantParams>(q));
  });
  CHECK(contains(e.on_cpu, "scale 0 of the result is 0, expected a positive number"));
  CHECK(e.on_gpu == e.on_cpu);
}

// Any integer dtype, with its ends.
Tensor integers(const Shape& shape, DType dtype, uint64_t seed) {
  if (dtype.is_code()) return host_codes(shape, dtype, seed);
  const RandomStream draws{seed, Purpose::kUser, 3, 0};
  std::vector<double> q(static_cast<size_t>(shape.numel()));
  const double size = dtype == dtypes::int32 ? 2147483647.0 : 9007199254740992.0;
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = i % 7 == 0 ? -size : std::floor((static_cast<double>(draws.uniform(i)) * 2 - 1) * size);
  return Tensor::from_elements(shape, dtype, q);
}

TEST_CASE("out_dtype of all integers") {
  for (const auto& [da, db] : {std::pair{dtypes::int8, dtypes::ternary},
                               {dtypes::bint1, dtypes::uint4},
                               {dtypes::int64, dtypes::int64},
                               {dtypes::int32, dtypes::int5}})
    for (const DType out : {dtypes::int32, dtypes::int64, dtypes::fp32, dtypes::int8, dtypes::uint3}) {
      INFO(da << ' ' << db << ' ' << out);
      const Tensor a = integers({3, 70}, da, 1), b = integers({3, 70}, db, 2), k_major = integers({70, 66}, db, 3);
      for (const IntegerOp op : {IntegerOp::matmul, IntegerOp::linear, IntegerOp::mul, IntegerOp::add}) {
        const auto run = [&] {
          const Tensor flag = Tensor::zeros({1}, dtypes::int32);
          const Var y = out_dtype(op, out, Var(here(a)), Var(here(op == IntegerOp::matmul ? k_major : b)),
                                  reinterpret_cast<uint32_t*>(flag.as<int32_t>()));
          return Results{y.value(), flag};
        };
        CHECK(device_difference(run) == "");
      }
    }
}

}  // namespace
