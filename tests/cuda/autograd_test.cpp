// The tape on a device: sums of gradients, their rounding, and what refuses tensors of another device.
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

TEST_CASE("a gradient with several readers is summed and rounded as on the CPU") {
  const RandomStream draws{5, Purpose::kGradient, 3, 1};
  for (const DType dtype : {dtypes::fp32, dtypes::bf16})
    for (const bool stochastic : {false, true})
      CHECK(device_difference([&] {
              AccumulateSink sink, other;
              if (stochastic) sink.set_rounding(&draws);
              for (int window = 0; window < 2; ++window) {
                Tape tape;
                const Var x = tape.leaf(here(host_numbers({7, 33}, 1)), &sink, dtype);
                const Var y = tape.leaf(here(host_numbers({7, 33}, 2)), &other, dtypes::fp32);
                Var inner = mul(x, y);
                inner.want_grad(dtype);
                tape.backward(bitgrad::sum(add(mul(inner, x), tanh(inner))));
              }
              return Results{sink.grad(), other.grad()};
            }) == "");
}

TEST_CASE("seeds of a device start backward there") {
  CHECK(device_difference([&] {
          AccumulateSink sink;
          Tape tape;
          const Var x = tape.leaf(here(host_numbers({5, 6}, 1)), &sink, dtypes::fp32);
          Var y = relu(x);
          y.want_grad(dtypes::bf16);
          const Tensor seed = here(host_numbers({5, 6}, 4, 1.0, dtypes::bf16));
          tape.backward({y, x}, {seed, here(host_numbers({5, 6}, 5))});
          return Results{sink.grad()};
        }) == "");
}

TEST_CASE("an op names the input that is on another device than the current one, and both devices") {
  const Tensor x = host_numbers({2, 3}, 1);
  const Tensor there = x.to_device(gpu(), MemoryKind::kActivation);
  CHECK(error_of([&] { add(x, there); }) ==
        "[add] input 1 ([2,3] fp32) is on cuda:0, but the current device is cpu. Copy it there (to_device), or change "
        "the "
        "DeviceGuard.");
  const DeviceGuard guard(gpu());
  CHECK(contains(error_of([&] { add(there, x); }),
                 "[add] input 1 ([2,3] fp32) is on cpu, but the current device is cuda:0"));
  CHECK(error_code_of([&] { relu(x); }) == static_cast<int>(ErrorCode::kDevice));
}

TEST_CASE("backward runs where forward ran") {
  AccumulateSink sink;
  Tape tape;
  Var loss;
  {
    const DeviceGuard guard(gpu());
    loss = bitgrad::sum(tape.leaf(here(host_numbers({2, 3}, 1)), &sink, dtypes::fp32));
  }
  CHECK(contains(error_of([&] { tape.backward(loss); }), "[backward] output 0 ([] fp32) is on cuda:0"));
}

// Takes rows on the CPU; a device gives none.
class AskedRows final : public GradRows {
 public:
  int64_t block_rows() const override { return 4; }
  void begin() override {}
  void consume(int64_t, const Tensor&) override {}
  void done() override {}
  void declined(std::string_view text) override { why = text; }
  std::string why;
};

TEST_CASE("a gradient requested in rows comes as a whole from a device, which reports it") {
  const Tensor x = host_numbers({19, 70}, 1), w = host_numbers({21, 70}, 2);
  const Tensor ids = Tensor::from_elements({2, 2}, dtypes::int32, std::vector<double>{0, 2, 3, 1});
  const DeviceGuard guard(gpu());
  for (const bool table : {false, true}) {
    AskedRows rows;
    AccumulateSink sink;
    sink.set_rows(&rows);
    Tape tape;
    const Var leaf = tape.leaf(here(w), &sink, dtypes::fp32);
    const Var y = table ? embedding(Var(here(ids)), leaf) : linear(Var(here(x)), leaf);
    tape.backward({y}, {here(host_numbers(y.shape(), 3))});
    CHECK(contains(rows.why, "its gradient was not produced in blocks of rows: cuda:0 computes whole tensors"));
    CHECK(sink.grad().shape() == w.shape());
  }
}

TEST_CASE("labels of the host are refused on a device") {
  const Tensor y = host_numbers({3, 4}, 3),
               labels = Tensor::from_elements({3}, dtypes::int32, std::vector<double>{0, 3, 1});
  const DeviceGuard guard(gpu());
  CHECK(contains(error_of([&] { squared_hinge(here(y), labels); }), "labels ([3] int32) are on cpu"));
}

TEST_CASE("fp64 is refused on a device") {
  const DeviceGuard guard(gpu());
  const Tensor x = Tensor::zeros({2, 3}, dtypes::fp64);
  CHECK(contains(error_of([&] { relu(x); }), "fp64 is the reference dtype of the CPU"));
}

}  // namespace
