// Ops over the families pointwise and rowwise on a device: the bits of the CPU, forward and backward, and its errors.
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

using Op = std::function<Var(const std::vector<Var>&)>;

Results forward_and_backward(const std::vector<Tensor>& inputs, const Op& op, DType grad) {
  Tape tape;
  std::vector<AccumulateSink> sinks(inputs.size());
  std::vector<Var> in;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(tape.leaf(here(inputs[i]), &sinks[i], grad));
  const Var y = op(in);
  Results out{y.value()};
  tape.backward({y}, {here(random_numbers(y.shape(), 99))});
  for (const AccumulateSink& s : sinks) out.push_back(s.grad());
  return out;
}

std::string differs(const std::vector<Tensor>& inputs, const Op& op) {
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    if (const std::string text = device_difference([&] { return forward_and_backward(inputs, op, grad); });
        !text.empty())
      return concat("gradients in ", grad, ": ", text);
  return "";
}

Tensor targets_for(const Shape& shape, int64_t classes) {
  std::vector<double> t;
  for (int64_t i = 0; i < shape.numel(); ++i)
    t.push_back(i % 5 == 3 ? kIgnoreIndex : static_cast<double>(i * 7 % classes));
  return Tensor::from_elements(shape, dtypes::int32, t);
}

}  // namespace

TEST_CASE("sums, differences and products of shapes that broadcast") {
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{7, 65}, {65}},  {{3, 1}, {1, 40}}, {{2, 3, 40}, {3, 1}}, {{2, 3, 1, 5}, {2, 1, 4, 1}},
      {{1300, 3}, {3}}, {{5, 6}, {}},      {{0, 3}, {3}},        {{9, 17}, {9, 17}}};
  for (const auto& [a, b] : pairs)
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      INFO(a << ' ' << b << ' ' << dtype);
      const std::vector<Tensor> in{random_numbers(a, 1, 3, dtype), random_numbers(b, 2, 3, dtype)};
      CHECK(differs(in, [](const auto& v) { return add(v[0], v[1]); }) == "");
      CHECK(differs(in, [](const auto& v) { return sub(v[0], v[1]); }) == "");
      CHECK(differs(in, [](const auto& v) { return mul(v[0], v[1]); }) == "");
    }
}

TEST_CASE("functions of bf16") {
  const Tensor x = random_numbers({7, 300}, 1, 4, dtypes::bf16);
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i)
    CHECK(differs({x}, [&](const auto& v) { return unary(static_cast<UnaryOp>(i), v[0]); }) == "");
}

TEST_CASE("moves of numbers and of codes") {
  for (const DType dtype : {dtypes::fp32, dtypes::bf16, dtypes::int8, dtypes::bint1, dtypes::ternary, dtypes::int3}) {
    const bool codes = dtype.is_code();
    const Tensor x = codes ? with_scales(random_codes({3, 4, 70}, dtype, 3), Granularity::tensor())
                           : random_numbers({3, 4, 70}, 3, 1, dtype);
    INFO(dtype);
    CHECK(differs({x}, [](const auto& v) { return permute(v[0], {1, 0, 2}); }) == "");
    if (dtype.bits() >= 8) CHECK(differs({x}, [](const auto& v) { return permute(v[0], {2, 0, 1}); }) == "");
    CHECK(differs({x}, [](const auto& v) { return slice(v[0], 0, 1, 3); }) == "");
    CHECK(differs({x}, [](const auto& v) { return slice(v[0], 1, 1, 3); }) == "");
    CHECK(differs({x}, [](const auto& v) { return slice(v[0], 2, 13, 68); }) == "");
    for (const int64_t axis : {0, 1, 2})
      CHECK(differs({x}, [&](const auto& v) {
              return concatenate({v[0], slice(v[0], axis, 0, 2), v[0]}, axis);
            }) == "");
  }
}

TEST_CASE("scales of codes that are joined are compared when flags are read") {
  const Tensor a = with_scales(random_codes({2, 5}, dtypes::int4, 1), Granularity::tensor());
  const Tensor b = with_scales(random_codes({2, 5}, dtypes::int4, 2), Granularity::tensor());
  CHECK(device_difference([&] { return Results{concatenate({Var(here(a)), Var(here(b))}, 1).value()}; }) == "");
  QuantParams other = *b.quant();
  other.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 0.5, MemoryKind::kQuantState));
  const Tensor c = b.with_quant(std::make_shared<const QuantParams>(other));
  const TwoErrors e = errors_of([&] { concatenate({Var(here(a)), Var(here(c))}, 1); });
  CHECK(contains(e.on_cpu, "scale or zero point of part 1 differs from that of part 0"));
  CHECK(e.on_gpu == e.on_cpu);
}

TEST_CASE("softmax, layer norm and RMS norm") {
  for (const Shape& shape : {Shape{5}, Shape{3, 4, 33}, Shape{2, 1100}, Shape{0, 3}})
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      INFO(shape << ' ' << dtype);
      const Tensor x = random_numbers(shape, 1, 4, dtype);
      const std::vector<Tensor> in{x, random_numbers({shape.cols()}, 2), random_numbers({shape.cols()}, 3)};
      CHECK(differs({x}, [](const auto& v) { return softmax(v[0]); }) == "");
      CHECK(differs(in, [](const auto& v) { return layer_norm(v[0], v[1], v[2]); }) == "");
      CHECK(differs({in[0], in[1]}, [](const auto& v) { return rms_norm(v[0], v[1]); }) == "");
      CHECK(differs({x, x}, [](const auto& v) { return gated(UnaryOp::silu, v[0], v[1]); }) == "");
      if (shape.cols() % 2 == 0) CHECK(differs({x}, [](const auto& v) { return gated(UnaryOp::gelu, v[0]); }) == "");
    }
}

TEST_CASE("losses over positions and elements, and totals for metrics") {
  for (const Shape& positions : {Shape{1}, Shape{9}, Shape{4, 300}})
    for (const int64_t classes : {1, 33, 1100})
      for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
        INFO(positions << ' ' << classes << ' ' << dtype);
        if (positions.numel() * classes > 100000) continue;
        std::vector<int64_t> dims = positions.dims();
        dims.push_back(classes);
        const Tensor y = random_numbers(Shape(dims), 3, 4, dtype), t = targets_for(positions, classes);
        Tensor numbers = random_numbers(Shape(dims), 4);
        for (int64_t i = 0; i < numbers.numel(); ++i) numbers.as<float>()[i] = std::fabs(numbers.as<float>()[i]);
        CHECK(differs({y}, [&](const auto& v) { return cross_entropy(v[0], here(t)); }) == "");
        CHECK(differs({y}, [&](const auto& v) { return mean_squared_error(v[0], here(numbers)); }) == "");
        CHECK(differs({y}, [&](const auto& v) { return sigmoid_cross_entropy(v[0], here(numbers)); }) == "");
        CHECK(device_difference([&] {
                return Results{target_count(here(t)), top_k_count(here(y), here(t), 1),
                               top_k_count(here(y), here(t), 5), squared_error_total(here(y), here(numbers))};
              }) == "");
      }
}

TEST_CASE("wrong targets are the same errors, on the device when flags are read") {
  const Tensor y = random_numbers({2, 3, 4}, 3);
  const auto numbers = [](const std::vector<double>& t) { return Tensor::from_elements({2, 3}, dtypes::int32, t); };
  const Tensor bad = numbers({0, 1, 2, 3, 4, 0}), none = numbers({-9, -9, -9, -9, -9, -9});
  for (const auto& run : std::vector<std::function<void()>>{
           [&] { cross_entropy(Var(here(y)), here(bad)); }, [&] { cross_entropy(Var(here(y)), here(none), -9); },
           [&] { top_k_count(here(y), here(bad), 5); },
           [&] {
             sigmoid_cross_entropy(Var(here(y)), here(random_numbers({2, 3, 4}, 4)));
           }}) {
    const TwoErrors e = errors_of(run);
    CHECK(!e.on_cpu.empty());
    CHECK(e.on_gpu == e.on_cpu);
  }
  const DeviceGuard guard(gpu());
  CHECK(contains(error_of([&] { cross_entropy(Var(here(y)), bad); }), "targets ([2,3] int32) is on cpu"));
  CHECK(contains(error_of([&] { top_k_count(y, bad, 5); }), "[top_k_count] logits ([2,3,4] fp32) is on cpu"));
}
