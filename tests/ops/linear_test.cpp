// Linear of every pair of dtypes: forward and both gradients.
#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Registered while the program runs, as a user's program does.
DType my_ternary() {
  return register_dtype({"linear_test_m1_0_2", 3, DTypeKind::kCodebook, 0, 0, {-1.0f, 0.0f, 2.0f, 0.5f, -0.5f}});
}
DType my_int() { return register_dtype({"linear_test_int5_narrow", 5, DTypeKind::kInt, -15, 15, {}}); }

std::vector<DType> operand_dtypes() {
  my_ternary();
  my_int();
  std::vector<DType> out = code_dtypes();
  out.push_back(dtypes::fp32);
  out.push_back(dtypes::bf16);
  return out;
}

const std::vector<Shape> kSizes = {Shape{1, 1, 1}, Shape{3, 70, 5}, Shape{9, 131, 18}};  // n, f, o

bool same(const std::vector<double>& a, const std::vector<double>& b) { return a == b; }

}  // namespace

TEST_CASE("linear in fp64 passes the gradient check with and without bias") {
  for (const Shape& s : {Shape{1, 1, 1}, Shape{1, 4, 3}, Shape{5, 1, 2}, Shape{3, 6, 1}, Shape{4, 7, 5}}) {
    const std::vector<Tensor> in = {random_tensor({s[0], s[1]}, dtypes::fp64, 51),
                                    random_tensor({s[2], s[1]}, dtypes::fp64, 52),
                                    random_tensor({s[2]}, dtypes::fp64, 53)};
    CHECK(gradcheck([](const auto& v) { return linear(v[0], v[1]); }, {in[0], in[1]}) == "");
    CHECK(gradcheck([](const auto& v) { return linear(v[0], v[1], v[2]); }, in) == "");
  }
  const Tensor square = random_tensor({4, 4}, dtypes::fp64, 54);
  CHECK(gradcheck([](const auto& v) { return linear(v[0], v[0]); }, {square}) == "");
  CHECK(gradcheck([](const auto& v) { return linear(linear(v[0], v[1]), v[1]); },
                  {square, random_tensor({4, 4}, dtypes::fp64, 55)}) == "");
}

TEST_CASE("every activation dtype times every weight dtype gives the products of the values") {
  for (const DType dx : operand_dtypes())
    for (const DType dw : operand_dtypes())
      for (const Shape& s : kSizes) {
        const Tensor x = random_tensor({s[0], s[1]}, dx, 61), w = random_tensor({s[2], s[1]}, dw, 62);
        const std::string found = check_linear(x, w, 63);
        if (!found.empty()) FAIL_CHECK(found);
        if (integer_kind(dx) && integer_kind(dw) &&
            !same(linear(Var(x), Var(w)).value().elements(), exact_integer_product(x, w)))
          FAIL_CHECK("not exact: x " << x << ", w " << w);
      }
}

TEST_CASE("integers with scales and zero points are exact sums times one product of scales") {
  const std::vector<Granularity> free = {Granularity::tensor(), Granularity::channel(0), Granularity::token()};
  for (const DType dx :
       {dtypes::bint1, dtypes::ternary, dtypes::int1, dtypes::int8, dtypes::uint8, dtypes::uint3, my_int()})
    for (const DType dw : {dtypes::bint1, dtypes::ternary, dtypes::int1, dtypes::int4, dtypes::int8, dtypes::uint8})
      for (const Granularity& gx : free)
        for (const Granularity& gw : free)
          for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger}) {
            const Tensor x = random_codes({3, 130}, dx, 64, gx, zero), w = random_codes({17, 130}, dw, 65, gw, zero);
            const Tensor bias = random_tensor({17}, dtypes::fp32, 66);
            const std::string found = check_linear(x, w, 67);
            if (!found.empty()) FAIL_CHECK(found);
            if (!same(linear(Var(x), Var(w), Var(bias)).value().elements(), exact_integer_product(x, w, bias)))
              FAIL_CHECK("not exact: x " << x.describe() << ", w " << w.describe());
            if (!same(linear(Var(x), Var(w.without_quant())).value().elements(),
                      exact_integer_product(x, w.without_quant())))
              FAIL_CHECK("not exact: x " << x.describe() << ", w without scales " << w);
          }
}

TEST_CASE("scales along the contracted axis, groups, offsets and codebooks give the products of the values") {
  const std::vector<Granularity> all = {Granularity::tensor(),    Granularity::channel(0), Granularity::channel(1),
                                        Granularity::token(),     Granularity::groups(32), Granularity::groups(50),
                                        Granularity::groups(3, 0)};
  for (const DType dw : {dtypes::int4, dtypes::uint8, dtypes::bint1, dtypes::nf4, my_ternary()})
    for (const Granularity& gw : all)
      for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
        if (zero == ZeroKind::kInteger && dw.kind() == DTypeKind::kCodebook) continue;
        const Tensor w = random_codes({10, 130}, dw, 68, gw, zero);
        for (const DType dx : {dtypes::fp32, dtypes::bf16, dtypes::int8}) {
          const std::string found = check_linear(random_tensor({4, 130}, dx, 69), w, 70);
          if (!found.empty()) FAIL_CHECK(found);
        }
        const std::string transposed =
            check_linear(w, random_tensor({6, 130}, dtypes::int3, 71), 72);  // as the activation
        if (!transposed.empty()) FAIL_CHECK(transposed);
      }
}

TEST_CASE("derived layouts of the weight change no bit of the product") {
  for (const DType dx : {dtypes::bint1, dtypes::ternary, dtypes::int8, dtypes::fp32})
    for (const DType dw : {dtypes::bint1, dtypes::ternary, dtypes::int8}) {
      const StrictBits strict;
      const Tensor x = random_tensor({33, 200}, dx, 73),
                   plain = random_codes({47, 200}, dw, 74, Granularity::channel(0));
      Tensor rich = plain.clone(MemoryKind::kValue);
      for (const Layout layout : all_layouts())
        if (layout != layouts::canonical && layout.info().supports(dw)) {
          Tensor derived = Tensor::empty_layout(plain.shape(), dw, layout, MemoryKind::kDerived);
          layout.info().pack(dw, plain.rows(), plain.cols(), plain.data(), plain.stride(), derived.data());
          rich.attach_layout(derived);
        }
      const Tensor gy = random_tensor({33, 47}, dtypes::fp32, 75);
      const LinearRun a = run_linear(x, plain, gy), b = run_linear(x, rich, gy);
      CHECK(bits_of(a.y) == bits_of(b.y));
      CHECK(bits_of(a.gx) == bits_of(b.gx));
      CHECK(bits_of(a.gw) == bits_of(b.gw));
    }
}

TEST_CASE("views of rows and columns are operands like any other") {
  const Tensor big_x = random_codes({12, 192}, dtypes::int4, 76, Granularity::token()),
               big_w = random_codes({9, 192}, dtypes::int2, 77, Granularity::groups(32));
  CHECK(check_linear(big_x.row_slice(3, 8), big_w.row_slice(2, 9), 78) == "");
  CHECK(check_linear(big_x.column_slice(64, 192), big_w.column_slice(64, 192), 79) == "");
  const Tensor fx = random_tensor({5, 40}, dtypes::fp32, 80);
  CHECK(check_linear(fx.column_slice(3, 33), random_tensor({4, 30}, dtypes::int6, 81), 82) == "");
}

TEST_CASE("empty products are zeros plus bias") {
  const Tensor bias = random_tensor({3}, dtypes::fp32, 83);
  CHECK(
      linear(Var(Tensor::zeros({2, 0}, dtypes::bint1)), Var(Tensor::zeros({3, 0}, dtypes::bint1))).value().elements() ==
      std::vector<double>(6, 0.0));
  const std::vector<double> b = bias.elements();
  CHECK(linear(Var(Tensor::zeros({1, 0}, dtypes::fp32)), Var(Tensor::zeros({3, 0}, dtypes::int4)), Var(bias))
            .value()
            .elements() == b);
  for (const DType d : {dtypes::fp32, dtypes::int8, dtypes::bint1}) {
    const LinearRun run = run_linear(Tensor::zeros({0, 4}, d), Tensor::zeros({3, 4}, d),
                                     Tensor::zeros({0, 3}, dtypes::fp32), dtypes::fp32, dtypes::fp32, bias);
    CHECK(run.y.shape() == Shape{0, 3});
    CHECK(run.gx.shape() == Shape{0, 4});
    CHECK(run.gw.elements() == std::vector<double>(12, 0.0));
    CHECK(run.gb.elements() == std::vector<double>(3, 0.0));
    CHECK(run_linear(Tensor::zeros({2, 4}, d), Tensor::zeros({0, 4}, d), Tensor::zeros({2, 0}, dtypes::fp32))
              .gx.elements() == std::vector<double>(8, 0.0));
  }
}

TEST_CASE("operands that do not fit linear are errors that name both") {
  const Var x = Tensor::zeros({2, 3}, dtypes::fp32), w = Tensor::zeros({4, 5}, dtypes::int4);
  CHECK(error_of([&] { linear(x, w); }) == "[linear] x has 3 features, w expects 5 (x [2,3] fp32, w [4,5] int4)");
  CHECK(error_of([&] { linear(Var(Tensor::zeros({3}, dtypes::fp32)), w); }) ==
        "[linear] x and w must be matrices: got x [3] fp32, w [4,5] int4");
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(error_of([&] {
            linear(Var(Tensor::zeros({2, 5}, dtypes::fp64)), w);
          }) == "[linear] x and w must both be fp64, or neither: got x [2,5] fp64, w [4,5] int4");
  CHECK(error_of([&] {
          linear(Var(Tensor::zeros({2, 5}, dtypes::fp32)), w, Var(Tensor::zeros({5}, dtypes::fp32)));
        }) == "[linear] bias must be [4] fp32, got [5] fp32");
  CHECK(contains(error_of([&] {
                   linear(Var(Tensor::zeros({2, 5}, dtypes::fp32)), w, Var(Tensor::zeros({4}, dtypes::int8)));
                 }),
                 "bias must be [4] fp32"));
}
