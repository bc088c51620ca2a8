#include <cstring>

#include "bitgrad/ops/spatial.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("flatten keeps the elements of every dtype in row-major order, and the pad bits zero") {
  uint64_t seed = 1;
  for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int4, dtypes::uint2, dtypes::int8, dtypes::uint8})
    for (const int64_t c : {1, 3, 7, 8, 15, 16, 31, 32, 63, 64, 65, 130})
      for (const Shape& pixels : {Shape{1, 1}, Shape{1, 2}, Shape{3, 1}, Shape{4, 5}, Shape{7, 3}})
        for (const int64_t n : {0, 1, 3}) {
          const Tensor x = random_tensor({n, pixels[0], pixels[1], c}, dtype, ++seed);
          const Tensor y = flatten(x).value();
          INFO(x << " -> " << y);
          REQUIRE(y.shape() == Shape{n, pixels[0] * pixels[1] * c});
          REQUIRE(y.elements() == x.elements());
          // Canonical codes made of the same numbers have the same bytes.
          const Tensor made = Tensor::from_elements(y.shape(), dtype, x.elements());
          REQUIRE(made.stride() == y.stride());
          REQUIRE(std::memcmp(made.data(), y.data(), static_cast<size_t>(y.stride() * n)) == 0);
          REQUIRE((y.storage().data() == x.storage().data()) == (c * dtype.bits() % 64 == 0 || pixels.numel() == 1));
        }
}

TEST_CASE("flatten keeps a scale per tensor, and refuses others where rows are packed anew") {
  const Tensor x = random_codes({2, 3, 3, 5}, dtypes::int4, 4, {}, ZeroKind::kInteger);
  CHECK(flatten(x).value().values() == x.values());
  for (const Granularity& g : {Granularity::token(), Granularity::channel(1)}) {
    const Tensor other = random_codes({2, 3, 3, 5}, dtypes::int4, 4, g);
    CHECK(contains(error_of([&] { flatten(other); }),
                   concat("[flatten] x [2,3,3,5] int4 has scales per ", g, ", expected one per tensor")));
    const Tensor pixels = random_codes({18, 1, 1, 5}, dtypes::int4, 4, g);
    CHECK(flatten(pixels).value().values() == pixels.values());
  }
}

TEST_CASE("the gradient of flatten is that of the elements") {
  CHECK(gradcheck([](const auto& v) { return flatten(v[0]); }, {random_tensor({2, 3, 4, 5}, dtypes::fp64, 5)}) == "");
  for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
    const Tensor x = random_tensor({2, 3, 4, 5}, dtype, 6), gy = random_tensor({2, 60}, dtypes::fp32, 7);
    AccumulateSink sink;
    Tape tape;
    const Var y = flatten(tape.leaf(x, &sink, dtypes::fp32));
    CHECK(y.value().elements() == x.elements());
    tape.backward({y}, {gy});
    CHECK(sink.grad().elements() == gy.elements());
    CHECK(sink.grad().shape() == x.shape());
  }
  // Of codes too.
  const Tensor codes = random_tensor({2, 3, 3, 5}, dtypes::bint1, 8), gy = random_tensor({2, 45}, dtypes::fp32, 9);
  AccumulateSink sink;
  Tape tape;
  tape.backward({flatten(tape.leaf(codes, &sink, dtypes::fp32))}, {gy});
  CHECK(sink.grad().elements() == gy.elements());
}
