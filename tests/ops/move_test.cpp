// Ops that move elements: permute, slice, concatenate.
#include <algorithm>
#include <cstring>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<int64_t> index_of(const Shape& shape, int64_t i) {
  std::vector<int64_t> out(static_cast<size_t>(shape.rank()));
  for (int64_t axis = shape.rank() - 1; axis >= 0; --axis) {
    out[static_cast<size_t>(axis)] = i % shape[axis];
    i /= shape[axis];
  }
  return out;
}
int64_t flat_of(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t i = 0;
  for (int64_t axis = 0; axis < shape.rank(); ++axis) i = i * shape[axis] + index[static_cast<size_t>(axis)];
  return i;
}

std::vector<double> permuted_numbers(const Tensor& x, const std::vector<int64_t>& axes) {
  std::vector<int64_t> dims;
  for (const int64_t a : axes) dims.push_back(x.shape()[a]);
  const Shape shape(dims);
  const std::vector<double> from = x.elements();
  std::vector<double> out;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const std::vector<int64_t> to = index_of(shape, i);
    std::vector<int64_t> source(to.size());
    for (size_t k = 0; k < to.size(); ++k) source[static_cast<size_t>(axes[k])] = to[k];
    out.push_back(from[static_cast<size_t>(flat_of(x.shape(), source))]);
  }
  return out;
}

std::vector<double> sliced_numbers(const Tensor& x, int64_t axis, int64_t begin, int64_t end) {
  const std::vector<double> from = x.elements();
  std::vector<double> out;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t k = index_of(x.shape(), i)[static_cast<size_t>(axis)];
    if (k >= begin && k < end) out.push_back(from[static_cast<size_t>(i)]);
  }
  return out;
}

std::vector<std::vector<int64_t>> orders(int64_t rank) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  std::vector<std::vector<int64_t>> out;
  do out.push_back(axes);
  while (std::next_permutation(axes.begin(), axes.end()));
  return out;
}

// fp32, bf16, int32, int64 and codes of every width; codes with one scale.
std::vector<Tensor> movable(const Shape& shape) {
  std::vector<Tensor> out;
  for (const DType d : {dtypes::fp32, dtypes::bf16, dtypes::int32, dtypes::int64})
    out.push_back(random_tensor(shape, d, 1));
  for (const DType d : code_dtypes()) out.push_back(random_codes(shape, d, 2));
  return out;
}

const std::vector<Shape> kShapes = {{}, {5}, {3, 70}, {2, 3, 65}, {2, 3, 4, 9}, {4, 1, 3}, {2, 0, 3}};

// Pad bits of the rows of a tensor of codes.
bool pads_are_zero(const Tensor& t) {
  const Tensor again = Tensor::from_elements(t.shape(), t.dtype(), t.elements());
  return std::memcmp(t.data(), again.data(), static_cast<size_t>(t.bytes())) == 0;
}

}  // namespace

TEST_CASE("permute, slice and concatenate pass the gradient check") {
  for (const Shape& shape : kShapes) {
    const Tensor x = random_tensor(shape, dtypes::fp64, 3), z = random_tensor(shape, dtypes::fp64, 4);
    for (const auto& axes : orders(shape.rank()))
      CHECK(gradcheck([&](const auto& v) { return permute(v[0], axes); }, {x}) == "");
    for (int64_t axis = 0; axis < shape.rank(); ++axis) {
      const int64_t n = shape[axis];
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, n}, {n / 2, n}, {n / 3, n / 3}, {0, n / 2}})
        CHECK(gradcheck([&, b = begin, e = end](const auto& v) { return slice(v[0], axis, b, e); }, {x}) == "");
      CHECK(gradcheck([&](const auto& v) { return concatenate({v[0], v[1], v[0]}, axis); }, {x, z}) == "");
    }
  }
}

TEST_CASE("permute moves every dtype and keeps the scale; packed rows move whole") {
  for (const Shape& shape : kShapes)
    for (const Tensor& x : movable(shape))
      for (const auto& axes : orders(shape.rank())) {
        if (x.dtype().bits() < 8 && !axes.empty() && axes.back() != shape.rank() - 1) continue;
        INFO(x.describe());
        const Tensor y = permute(Var(x), axes).value();
        CHECK(y.elements() == permuted_numbers(x, axes));
        CHECK(y.quant() == x.quant());
        if (x.dtype().is_code() && x.numel() > 0) CHECK(pads_are_zero(y));
      }
  CHECK(permute(Var(random_tensor({2, 3, 4}, dtypes::fp32, 5)), {-1, 0, -2}).shape() == Shape{4, 2, 3});
}

TEST_CASE("slice cuts every dtype along every axis, wherever codes begin in a word") {
  for (const Shape& shape : kShapes)
    for (const Tensor& x : movable(shape))
      for (int64_t axis = 0; axis < shape.rank(); ++axis)
        for (int64_t begin = 0; begin <= shape[axis]; begin += 1 + shape[axis] / 5)
          for (int64_t end = begin; end <= shape[axis]; end += 1 + shape[axis] / 4) {
            INFO(x.describe() << " axis " << axis << " [" << begin << ", " << end << ")");
            const Tensor y = slice(Var(x), axis, begin, end).value();
            CHECK(y.elements() == sliced_numbers(x, axis, begin, end));
            CHECK((y.quant() != nullptr) == (x.quant() != nullptr));
            if (x.dtype().is_code() && y.numel() > 0 && y.contiguous()) CHECK(pads_are_zero(y));
          }
}

TEST_CASE("parts that were cut are joined back, for any shared words") {
  for (const Shape& shape : kShapes)
    for (const Tensor& x : movable(shape))
      for (int64_t axis = 0; axis < shape.rank(); ++axis) {
        const int64_t n = shape[axis];
        std::vector<Var> parts;
        for (const auto& [begin, end] :
             {std::pair<int64_t, int64_t>{0, n / 7}, {n / 7, n / 2}, {n / 2, n / 2}, {n / 2, n}})
          parts.push_back(slice(Var(x), axis, begin, end));
        INFO(x.describe() << " axis " << axis);
        const Tensor y = concatenate(parts, axis).value();
        CHECK(y.elements() == x.elements());
        CHECK(y.shape() == x.shape());
        if (x.dtype().is_code() && x.numel() > 0) CHECK(pads_are_zero(y));
      }
}

TEST_CASE("gradients on bf16 edges pass through moves exactly") {
  const Tensor x = random_tensor({3, 4, 5}, dtypes::bf16, 6), seed = random_tensor({5, 3, 4}, dtypes::fp32, 7);
  AccumulateSink sink;
  Tape tape;
  Var a = tape.leaf(x, &sink, dtypes::fp32);
  Var b = permute(a, {2, 0, 1}).want_grad(dtypes::bf16);
  const Var c = concatenate({slice(b, 1, 0, 1), slice(b, 1, 1, 3)}, 1);
  tape.backward({c}, {seed});
  std::vector<double> expected;
  for (const double v : permuted_numbers(seed, {1, 2, 0}))
    expected.push_back(bf16_to_float(bf16_from_float(static_cast<float>(v))));
  CHECK(sink.grad().elements() == expected);
}

TEST_CASE("scales of any granularity are cut with the rows of axis 0, and refused elsewhere") {
  const Tensor x = random_codes({6, 70}, dtypes::int4, 8, Granularity::channel(0));
  CHECK(slice(Var(x), 0, 2, 5).value().values() == x.row_slice(2, 5).values());
  CHECK(error_of([&] { slice(Var(x), 1, 0, 3); }) ==
        "[slice] x ([6,70] int4) has scales per channel(0); only one scale for the tensor moves with its elements. "
        "Dequantize it first");
  CHECK(contains(error_of([&] { permute(Var(x), {0, 1}); }), "[permute] x ([6,70] int4) has scales per channel(0)"));
}

TEST_CASE("axes and sizes that do not fit are errors that name them") {
  const Tensor x = Tensor::zeros({2, 3}, dtypes::fp32), codes = Tensor::zeros({2, 3}, dtypes::int4);
  CHECK(error_of([&] { permute(Var(x), {0}); }) == "[permute] got 1 axes for x [2,3] fp32, expected 2");
  CHECK(error_of([&] { permute(Var(x), {0, 0}); }) == "[permute] axis 0 of x [2,3] fp32 is named twice");
  CHECK(error_of([&] { permute(Var(x), {0, 2}); }) == "[permute] axis 2 of x [2,3] fp32: expected -2 .. 1");
  CHECK(contains(error_of([&] {
                   permute(Var(codes), {1, 0});
                 }),
                 "the last axis of x [2,3] int4 is packed and stays the last: got axis 0 there"));
  CHECK(contains(error_of([&] {
                   permute(Var(Tensor::zeros({1, 1, 1, 1, 1}, dtypes::fp32)), {0, 1, 2, 3, 4});
                 }),
                 "has 5 axes, expected at most 4"));
  CHECK(error_of([&] { slice(Var(x), 1, 2, 4); }) ==
        "[slice] [2, 4) of axis 1 of x [2,3] fp32, which has 3 elements there");
  CHECK(contains(error_of([&] { slice(Var(x), 2, 0, 1); }), "[slice] axis 2 of x [2,3] fp32: expected -2 .. 1"));
  CHECK(
      contains(error_of([&] { slice(Var(x.column_slice(0, 2)), 1, 0, 1); }), "[slice] x must be dense, got a view of"));
  CHECK(error_of([&] {
          concatenate({Var(x), Var(codes)}, 0);
        }) ==
        "[concatenate] part 1 ([2,3] int4) does not fit part 0 ([2,3] fp32): parts have one dtype, and one size but "
        "along axis 0");
  CHECK(contains(error_of([&] {
                   concatenate({Var(x), Var(Tensor::zeros({2, 4}, dtypes::fp32))}, 0);
                 }),
                 "part 1 ([2,4] fp32) does not fit"));
  CHECK(error_of([&] { concatenate({}, 0); }) == "[concatenate] no parts to join");
}

TEST_CASE("codes are joined where one scale serves all") {
  const Tensor a = random_codes({2, 5}, dtypes::int4, 9, {}, ZeroKind::kInteger);
  const Tensor b = random_codes({2, 5}, dtypes::int4, 10, {}, ZeroKind::kInteger);
  QuantParams copy = *a.quant();
  copy.scale = std::make_shared<const Tensor>(a.quant()->scale->clone(MemoryKind::kQuantState));
  const Tensor equal = b.with_quant(std::make_shared<const QuantParams>(copy));
  const Tensor y = concatenate({Var(a), Var(equal)}, 0).value();
  std::vector<double> expected = a.values(), more = equal.values();
  expected.insert(expected.end(), more.begin(), more.end());
  CHECK(y.values() == expected);
  CHECK(error_of([&] {
          concatenate({Var(a), Var(b)}, 0);
        }) ==
        "[concatenate] scale or zero point of part 1 differs from that of part 0: codes are joined where one scale "
        "serves all. Dequantize them first");
  CHECK(contains(error_of([&] {
                   concatenate({Var(a), Var(b.without_quant())}, 0);
                 }),
                 "part 0 ([2,5] int4) has a scale, part 1 ([2,5] int4) has none"));
}
