// Row and column views, reshapes and transposes of packed codes, with their scales.
#include "bitgrad/tensor/tensor.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Numbers = std::vector<double>;

// Rows [r0, r1) and columns [c0, c1) of a row-major matrix.
Numbers cut(const Numbers& all, int64_t cols, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  Numbers out;
  for (int64_t r = r0; r < r1; ++r)
    for (int64_t c = c0; c < c1; ++c) out.push_back(all[static_cast<size_t>(r * cols + c)]);
  return out;
}
Numbers transposed(const Numbers& all, int64_t rows, int64_t cols) {
  Numbers out;
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) out.push_back(all[static_cast<size_t>(r * cols + c)]);
  return out;
}

const std::vector<Granularity> kAll = {Granularity::tensor(),      Granularity::channel(0),  Granularity::channel(1),
                                       Granularity::channel(-1),   Granularity::token(),     Granularity::groups(32),
                                       Granularity::groups(64, 1), Granularity::groups(3, 0)};

}  // namespace

TEST_CASE("row views share the bytes and cut their scales") {
  for (const Granularity& g : kAll)
    for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
      const Tensor t = random_codes({8, 200}, dtypes::int4, 1, g, zero);
      INFO(t.describe());
      const Tensor v = t.row_slice(3, 8);
      CHECK(v.shape() == Shape{5, 200});
      CHECK(v.values() == cut(t.values(), 200, 3, 8, 0, 200));
      CHECK(static_cast<char*>(v.data()) - static_cast<char*>(t.data()) == 3 * t.stride());
      CHECK(v.row_slice(3, 5).values() == cut(t.values(), 200, 6, 8, 0, 200));
      CHECK(t.row_slice(0, 0).numel() == 0);
      CHECK(t.row_slice(8, 8).values().empty());
      CHECK_NOTHROW(t.row_slice(8, 8).with_quant(t.row_slice(8, 8).quant()));
      CHECK(t.column_slice(200, 200).values().empty());
    }
}

TEST_CASE("column views of codes start and end at multiples of lcm(group, 64)") {
  for (const DType d : {dtypes::bint1, dtypes::int3, dtypes::int8, dtypes::nf4})
    for (const Granularity& g : kAll) {
      const Tensor t =
          random_codes({5, 200}, d, 2, g, d.kind() == DTypeKind::kCodebook ? ZeroKind::kNone : ZeroKind::kReal);
      INFO(t.describe());
      CHECK(t.column_slice(64, 192).values() == cut(t.values(), 200, 0, 5, 64, 192));
      CHECK(t.column_slice(128, 200).values() == cut(t.values(), 200, 0, 5, 128, 200));
      CHECK(t.column_slice(64, 192).column_slice(64, 128).values() == cut(t.values(), 200, 0, 5, 128, 192));
      CHECK(contains(error_of([&] { t.column_slice(32, 200); }), concat("columns [32, 200) of [5,200] ", d)));
      CHECK(contains(error_of([&] { t.column_slice(0, 100); }), "[column_slice]"));
      CHECK(t.column_slice(64, 64).numel() == 0);
    }
  const Tensor odd = random_codes({2, 400}, dtypes::int4, 3, Granularity::groups(48));  // lcm(48, 64) = 192
  CHECK(odd.column_slice(192, 384).values() == cut(odd.values(), 400, 0, 2, 192, 384));
  CHECK(contains(error_of([&] { odd.column_slice(64, 400); }), "[column_slice]"));
  // Wider dtypes need whole groups only.
  const Tensor wide = random_codes({2, 10}, dtypes::int32, 4, Granularity::groups(4));
  CHECK(wide.column_slice(4, 8).values() == cut(wide.values(), 10, 0, 2, 4, 8));
  CHECK(contains(error_of([&] { wide.column_slice(1, 5); }), "columns [1, 5) of [2,10] int32"));
  CHECK(random_tensor({2, 10}, dtypes::fp32, 5).column_slice(1, 2).numel() == 2);
}

TEST_CASE("a view of a part of one row is dense") {
  const Tensor t = random_tensor({9}, dtypes::fp32, 4), part = t.row_slice(2, 8);
  CHECK(part.contiguous());
  CHECK(part.data() == t.as<float>() + 2);
  CHECK(part.reshape({2, 3}).values() == part.values());
  CHECK(random_codes({1, 200}, dtypes::int4, 5, Granularity::tensor()).column_slice(64, 200).contiguous());
  CHECK_FALSE(random_tensor({2, 9}, dtypes::fp32, 4).column_slice(2, 8).contiguous());
}

TEST_CASE("views out of range, or through a group, are errors") {
  const Tensor t = random_codes({6, 70}, dtypes::int4, 6, Granularity::groups(3, 0));
  CHECK(error_of([&] { t.row_slice(2, 7); }) == "[row_slice] rows [2, 7) of [6,70] int4");
  CHECK(contains(error_of([&] { t.row_slice(-1, 3); }), "rows [-1, 3)"));
  CHECK(contains(error_of([&] { t.row_slice(4, 3); }), "rows [4, 3)"));
  CHECK(error_of([&] { t.row_slice(1, 6); }) == "[row_slice] rows [1, 6) cut a group of 3 rows of [6,70] int4");
  CHECK(contains(error_of([&] { t.column_slice(0, 71); }), "columns [0, 71)"));
  CHECK(contains(error_of([] { Tensor::scalar(1).row_slice(0, 1); }), "[row_slice]"));
  const Tensor line = random_tensor({10}, dtypes::fp32, 7);
  CHECK(line.row_slice(2, 5).elements() == cut(line.elements(), 10, 0, 1, 2, 5));
  const Tensor cube = random_tensor({4, 3, 5}, dtypes::int6, 8);
  CHECK(cube.row_slice(1, 3).shape() == Shape{2, 3, 5});
  CHECK(cube.row_slice(1, 3).elements() == cut(cube.elements(), 5, 3, 9, 0, 5));
}

TEST_CASE("reshape keeps the bytes; the packed axis and scales set its limits") {
  const Tensor f = random_tensor({4, 6}, dtypes::fp32, 9);
  CHECK(f.reshape({24}).elements() == f.elements());
  CHECK(f.reshape({2, 12}).data() == f.data());
  CHECK(f.reshape({2, 2, 6}).rows() == 4);
  CHECK(random_tensor({4, 64}, dtypes::bint1, 10).reshape({2, 128}).elements() ==
        random_tensor({4, 64}, dtypes::bint1, 10).elements());
  CHECK(contains(error_of([] {
                   Tensor::zeros({4, 63}, dtypes::bint1).reshape({252});
                 }),
                 "the packed last axis cannot change from 63 to 252 for [4,63] bint1"));
  CHECK(contains(error_of([] {
                   Tensor::zeros({4, 64}, dtypes::bint1).reshape({8, 32});
                 }),
                 "cannot change from 64 to 32"));
  const Tensor by_row = random_codes({4, 64}, dtypes::bint1, 11, Granularity::channel(0));
  CHECK(by_row.reshape({2, 2, 64}).values() == by_row.values());
  CHECK(contains(error_of([&] {
                   by_row.reshape({2, 128});
                 }),
                 "are per channel(0); only per tensor scales allow another last axis"));
  CHECK(contains(error_of([&] { f.column_slice(0, 3).reshape({12}); }), "cannot change from 3 to 12"));
  CHECK(f.column_slice(0, 3).reshape({2, 2, 3}).elements() == f.column_slice(0, 3).elements());
  CHECK(contains(error_of([&] { f.reshape({5, 5}); }), "shape [5,5] has 25 elements, the tensor [4,6] fp32 has 24"));
  CHECK(Tensor::zeros({0, 3}, dtypes::fp32).reshape({3, 0}).shape() == Shape{3, 0});
}

TEST_CASE("transposes move codes and the axis of the scales, and twice is the identity") {
  for (const DType d :
       {dtypes::bint1, dtypes::int3, dtypes::uint8, dtypes::fp4_e2m1, dtypes::fp32, dtypes::bf16, dtypes::int64})
    for (const Granularity& g : kAll)
      for (const Shape& shape : {Shape{1, 1}, Shape{7, 130}, Shape{64, 64}, Shape{65, 3}, Shape{0, 5}, Shape{5, 0}}) {
        if (!d.is_code() && !(g == Granularity::tensor())) continue;
        const Tensor t =
            d.is_code()
                ? random_codes(shape, d, 12, g, d.kind() == DTypeKind::kCodebook ? ZeroKind::kNone : ZeroKind::kInteger)
                : random_tensor(shape, d, 12);
        INFO(t.describe());
        const Tensor u = transpose(t);
        CHECK(u.shape() == Shape{shape[1], shape[0]});
        CHECK(u.values() == transposed(t.values(), shape[0], shape[1]));
        CHECK(transpose(u).values() == t.values());
      }
  CHECK(error_of([] {
          transpose(Tensor::zeros({2, 3, 4}, dtypes::fp32));
        }) == "[transpose] needs a matrix, got [2,3,4] fp32");
}

TEST_CASE("a transpose of a view is that of its own elements") {
  const Tensor t = random_codes({9, 192}, dtypes::int5, 13, Granularity::channel(0));
  const Tensor v = t.row_slice(2, 7).column_slice(64, 192);
  CHECK(transpose(v).values() == transposed(v.values(), 5, 128));
}
