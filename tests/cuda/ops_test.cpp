// Ops on a device give the bits of the CPU, forward and backward, and its errors.
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

using Op = std::function<Var(const std::vector<Var>&)>;

// y and the gradients of the inputs, seeded by numbers of the index; gradients of `dtypes[i]`, fp64: none is wanted.
Results run_op(const std::vector<Tensor>& inputs, const Op& op, DType grad = dtypes::fp32, double seed_scale = 1.0) {
  Tape tape;
  std::vector<AccumulateSink> sinks(inputs.size());
  std::vector<Var> in;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(tape.leaf(here(inputs[i]), &sinks[i], grad));
  const Var y = op(in);
  Results out{y.value()};
  if (!y.tracked()) return out;
  tape.backward({y}, {here(random_numbers(y.shape(), 99, seed_scale))});
  for (const AccumulateSink& s : sinks) out.push_back(s.grad());
  return out;
}

std::string op_difference(const std::vector<Tensor>& inputs, const Op& op) {
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    if (const std::string text = device_difference([&] { return run_op(inputs, op, grad); }); !text.empty())
      return concat("gradients in ", grad, ": ", text);
  return "";
}

TEST_CASE("pointwise ops, sums and shapes") {
  for (const Shape& shape : {Shape{0, 3}, Shape{1, 1}, Shape{7, 65}, Shape{3, 6000}}) {
    INFO(shape);
    const std::vector<Tensor> pair{random_numbers(shape, 1, 3), random_numbers(shape, 2, 3)};
    CHECK(op_difference(pair, [](const auto& v) { return add(v[0], v[1]); }) == "");
    CHECK(op_difference(pair, [](const auto& v) { return mul(v[0], v[1]); }) == "");
    CHECK(op_difference({pair[0]}, [](const auto& v) { return bitgrad::sum(v[0]); }) == "");
    CHECK(op_difference({pair[0]}, [&](const auto& v) { return reshape(v[0], {shape.numel()}); }) == "");
    for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i)
      CHECK(op_difference({pair[0]}, [&](const auto& v) { return unary(static_cast<UnaryOp>(i), v[0]); }) == "");
  }
}

TEST_CASE("losses take labels of the host or of the device") {
  for (const int64_t n : {0, 1, 5, 1030})
    for (const int64_t classes : {1, 10, 33}) {
      INFO(n << ' ' << classes);
      const Tensor y = random_numbers({n, classes}, 3, 4);
      std::vector<int32_t> labels;
      std::vector<double> numbers;
      for (int64_t i = 0; i < n; ++i) labels.push_back(static_cast<int32_t>(i * 7 % classes));
      for (const int32_t l : labels) numbers.push_back(l);
      const Tensor as_tensor = Tensor::from_elements({n}, dtypes::int32, numbers);
      CHECK(op_difference({y}, [&](const auto& v) { return squared_hinge(v[0], labels); }) == "");
      CHECK(op_difference({y}, [&](const auto& v) { return squared_hinge(v[0], here(as_tensor)); }) == "");
      CHECK(op_difference({y}, [&](const auto& v) { return softmax_cross_entropy(v[0], labels); }) == "");
      CHECK(op_difference({y}, [&](const auto& v) { return softmax_cross_entropy_sum(v[0], here(as_tensor)); }) == "");
      CHECK(device_difference([&] { return Results{top_k_count(here(y), here(as_tensor), 1)}; }) == "");
      const int64_t correct = count_correct(y, labels);
      const DeviceGuard guard(gpu());
      CHECK(count_correct(here(y), labels) == correct);
      CHECK(top_k_count(here(y), here(as_tensor), 1).item() == static_cast<double>(correct));
    }
}

TEST_CASE("a label that is no class is the same error, on the device when flags are read") {
  const Tensor y = random_numbers({3, 4}, 3),
               bad = Tensor::from_elements({3}, dtypes::int32, std::vector<double>{0, 4, -1});
  using Loss = Var (*)(const Var&, const Tensor&);
  for (const Loss loss : {Loss(squared_hinge), Loss(softmax_cross_entropy_sum)}) {
    const TwoErrors e = errors_of([&] { loss(here(y), here(bad)); });
    CHECK(contains(e.on_cpu, "label 1 is 4, allowed are 0 .. 3"));
    CHECK(e.on_gpu == e.on_cpu);
  }
  const DeviceGuard guard(gpu());
  CHECK(contains(error_of([&] { squared_hinge(here(y), bad); }), "labels ([3] int32) are on cpu"));
}

TEST_CASE("norms: statistics, running averages, evaluation, gradients") {
  for (const Shape& shape : {Shape{1, 3}, Shape{17, 70}, Shape{1500, 5}})
    for (const bool training : {true, false})
      for (const bool batch : {true, false}) {
        INFO(shape << ' ' << training << ' ' << batch);
        const Shape one{batch ? shape[1] : 1};
        const std::vector<Tensor> in{random_numbers(shape, 1, 3), random_numbers(one, 2), random_numbers(one, 3)};
        CHECK(device_difference([&] {
                NormOptions options;
                options.training = training;
                options.running_mean = here(random_numbers(one, 4).clone(MemoryKind::kBuffer));
                options.running_var = Tensor::full(one, dtypes::fp32, 0.7);
                Results out = run_op(
                    in, [&](const auto& v) { return (batch ? batch_norm : tensor_norm)(v[0], v[1], v[2], options); });
                out.push_back(options.running_mean);
                out.push_back(options.running_var);
                return out;
              }) == "");
      }
}

TEST_CASE("dropout of numbers and of codes") {
  DropoutOptions options;
  options.p = 0.3;
  options.stream = {7, Purpose::kDropout, 11, 2};
  options.first_row = 3;
  CHECK(op_difference({random_numbers({9, 77}, 1)}, [&](const auto& v) { return dropout(v[0], options); }) == "");
  for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int3, dtypes::int4, dtypes::int8, dtypes::uint4})
    for (const bool scaled : {false, true}) {
      INFO(dtype.name() << ' ' << scaled);
      const Tensor codes = random_codes({9, 77}, dtype, 2);
      const bool zero = scaled && dtype == dtypes::uint4;
      const Tensor x = scaled ? with_scales(codes, Granularity::token()) : codes;
      if (!zero) CHECK(op_difference({x}, [&](const auto& v) { return dropout(v[0], options); }) == "");
    }
  const Tensor codes = random_codes({9, 77}, dtypes::uint4, 2);
  QuantParams outside = *with_scales(codes, Granularity::token(), true).quant();
  outside.zero = std::make_shared<const Tensor>(
      Tensor::from_elements({9}, dtypes::int32, std::vector<double>(9, -2), MemoryKind::kQuantState));
  const Tensor x = codes.with_quant(std::make_shared<const QuantParams>(outside));
  const TwoErrors e = errors_of([&] { dropout(here(x), options); });
  CHECK(contains(e.on_cpu, "a zero point lies outside its codes 0 to 15"));
  CHECK(e.on_gpu == e.on_cpu);
}

TEST_CASE("rows of a table that ids name, and their gradients in ascending order of position") {
  const RandomStream draws{5, Purpose::kGradient, 3, 1};
  std::vector<double> numbers;
  for (int i = 0; i < 7 * 9; ++i) numbers.push_back(i * i % 13);
  for (const DType ids_dtype : {dtypes::int32, dtypes::int64}) {
    const Tensor ids = Tensor::from_elements({7, 9}, ids_dtype, numbers);
    std::vector<Tensor> tables{random_numbers({13, 5}, 1), random_numbers({40, 67}, 2)};
    for (const DType dtype : {dtypes::bint1, dtypes::int3, dtypes::int8, dtypes::uint4})
      for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                                   Granularity::groups(64), Granularity::groups(3, 0)})
        tables.push_back(
            with_scales(random_codes({14, 130}, dtype, 4), g, dtype == dtypes::uint4, dtype == dtypes::int3));
    for (const Tensor& w : tables) {
      INFO(w.describe());
      for (const DType grad : {dtypes::fp32, dtypes::bf16})
        CHECK(device_difference([&] {
                AccumulateSink sink;
                if (grad == dtypes::bf16) sink.set_rounding(&draws);
                Results out;
                for (int i = 0; i < 2; ++i) {
                  Tape tape;
                  const Var y = embedding(Var(here(ids)), tape.leaf(here(w), &sink, grad));
                  tape.backward({y}, {here(random_numbers(y.shape(), static_cast<uint64_t>(i)))});
                  out.push_back(y.value());
                }
                out.push_back(sink.grad());
                return out;
              }) == "");
    }
  }
  const Tensor w = random_numbers({13, 5}, 1), none = Tensor::zeros({0, 4}, dtypes::int32);
  CHECK(device_difference(
            [&] { return run_op({w}, [&](const auto& v) { return embedding(Var(here(none)), v[0]); }); }) == "");
}

TEST_CASE("an id without a row is the same error, on the device when flags are read") {
  const Tensor w = random_numbers({3, 5}, 1),
               ids = Tensor::from_elements({2, 2}, dtypes::int32, std::vector<double>{0, 2, 3, 1});
  const TwoErrors e = errors_of([&] { embedding(Var(here(ids)), Var(here(w))); });
  CHECK(contains(e.on_cpu, "id at row 1, column 0: got 3, expected 0 .. 2, the rows of w [3,5] fp32"));
  CHECK(e.on_gpu == e.on_cpu);
}

}  // namespace
