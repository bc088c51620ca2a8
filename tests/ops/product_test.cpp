// The core of products: plans from forms ask for the kernels that tensors get, and operands that come in blocks of rows
// give the products of the whole.
#include "ops/product/operand.h"

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/ops.h"
#include "ops/linear_support.h"
#include "ops/product/gradient.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;
using detail::Operand;
using detail::Side;

namespace {

// What windows will be: rows are not in memory, but made a block at a time, here as copies of a matrix.
class CopiedRows final : public Operand {
 public:
  CopiedRows(const Tensor& matrix, int64_t block) : matrix_(matrix), block_(block) {}
  Side side(bool contracted_rows) const override { return detail::side_of(form_of(matrix_), contracted_rows); }
  int64_t row_count() const override { return matrix_.rows(); }
  int64_t block_rows() const override { return block_; }
  Tensor rows(int64_t begin, int64_t end, Tensor& workspace) const override {
    const Tensor part = matrix_.row_slice(begin, end);
    if (!workspace.defined() || workspace.rows() < end - begin)
      workspace = Tensor::empty({block_, matrix_.cols()}, matrix_.dtype(), MemoryKind::kWorkspace);
    const Tensor out = workspace.row_slice(0, end - begin);
    out.copy_from(part.without_quant());
    return out.with_quant(part.quant());
  }

 private:
  const Tensor matrix_;
  const int64_t block_;
};

Tensor forward(const Operand& x, const Tensor& w, const Tensor& bias) {
  Tensor y = Tensor::full({x.row_count(), w.rows()}, dtypes::fp32, -77);
  detail::forward_product(x, w, bias, y);
  return y;
}

// A slot of a leaf of this shape, given to `fill`; what the sink got.
struct Probe {
  static constexpr std::string_view kName = "probe";
  struct Saved {
    std::function<void(GradSlot&)> fill;
  };
  static Tensor forward(Saved& s, std::span<const Tensor>, const std::function<void(GradSlot&)>& fill) {
    s.fill = fill;
    return Tensor::scalar(0);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) { s.fill(g[0]); }
};
Tensor gradient_of(const Shape& shape, DType dtype, const std::function<void(GradSlot&)>& fill) {
  AccumulateSink sink;
  Tape tape;
  tape.backward(apply<Probe>({tape.leaf(Tensor::zeros(shape, dtypes::fp32), &sink, dtype)}, fill));
  return sink.grad();
}

// As one bool: a failure does not print thousands of numbers.
bool same_bits(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) { return a == b; }

}  // namespace

TEST_CASE("a plan of forms names the layout that the product of such tensors reads") {
  const std::vector<Granularity> granularities{Granularity::tensor(), Granularity::token(), Granularity::channel(1),
                                               Granularity::groups(32)};
  std::vector<DType> dtypes_of = code_dtypes();
  dtypes_of.push_back(dtypes::fp32);
  int other_than_canonical = 0;
  uint64_t turn = 0;
  for (const DType dx : dtypes_of)
    for (const DType dw : dtypes_of)
      for (const int64_t rows : {1, 24, 200}) {
        const auto made = [&](const Shape& shape, DType d) {
          ++turn;
          if (!d.is_code()) return random_tensor(shape, d, turn);
          return random_codes(shape, d, turn, granularities[turn / 3 % 4], static_cast<ZeroKind>(turn / 7 % 3));
        };
        const Tensor x = made({rows, 96}, dx), w = made({48, 96}, dw);
        const Tensor bias = Tensor::zeros({48}, dtypes::fp32);
        ProductForm form;
        form.x = form_of(x);
        form.w = form_of(w);
        form.bias = turn % 2 == 0;
        INFO(x.describe() << "; " << w.describe());
        const kernels::GemmArgs args = detail::product_args(detail::side_of(x, false), detail::side_of(w, false),
                                                            dtypes::fp32, form.bias ? bias.as<float>() : nullptr);
        const Layout planned = plan_product(form).w_layout;
        CHECK(planned == kernels::plan_gemm(args).b_layout);
        other_than_canonical += planned != layouts::canonical;
        if (!is_integer(dx) || !is_integer(dw) || !dx.is_code() || !dw.is_code()) continue;
        form.integer_out = true;
        const kernels::GemmArgs sums = detail::product_args(detail::side_of(x.without_quant(), false),
                                                            detail::side_of(w.without_quant(), false), dtypes::int32);
        CHECK(plan_product(form).w_layout == kernels::plan_gemm(sums).b_layout);
      }
  CHECK(other_than_canonical > 0);
}

TEST_CASE("a form describes what kernels are selected by") {
  const OperandForm none = form_of(random_tensor({3, 5}, dtypes::fp32, 1));
  CHECK(none.rows == 3);
  CHECK(none.cols == 5);
  CHECK(detail::scale_map_of(none).trivial());
  for (const Granularity& g : {Granularity::tensor(), Granularity::token(), Granularity::channel(0),
                               Granularity::channel(1), Granularity::groups(2), Granularity::groups(2, 0)})
    for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
      const Tensor t = random_codes({3, 5}, dtypes::int4, 2, g, zero);
      for (const bool contracted_rows : {false, true}) {
        const Side a = detail::side_of(t, contracted_rows), b = detail::side_of(form_of(t), contracted_rows);
        INFO("per " << g << ", contracted rows " << contracted_rows);
        CHECK(b.gemm.data == nullptr);
        CHECK(a.free == b.free);
        CHECK(a.contracted == b.contracted);
        CHECK(a.gemm.stride == b.gemm.stride);
        CHECK(a.gemm.k_major == b.gemm.k_major);
        CHECK((a.gemm.scale.scale != nullptr) == (b.gemm.scale.scale != nullptr));
        CHECK((a.gemm.scale.zero != nullptr) == (b.gemm.scale.zero != nullptr));
        CHECK((a.gemm.scale.offset != nullptr) == (b.gemm.scale.offset != nullptr));
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t c = 0; c < 5; ++c) CHECK(a.gemm.scale.index(r, c) == b.gemm.scale.index(r, c));
      }
    }
}

// [cpu]: blocks of the CPU
TEST_CASE("forward of an operand in blocks of rows has the bits of the whole matrix", "[cpu]") {
  const StrictBits strict;
  const int before = num_threads();
  uint64_t seed = 40;
  for (const auto& [dx, dw] : {std::pair{dtypes::bint1, dtypes::bint1}, std::pair{dtypes::ternary, dtypes::bint1},
                               std::pair{dtypes::int8, dtypes::int4}, std::pair{dtypes::fp32, dtypes::fp32},
                               std::pair{dtypes::fp32, dtypes::bint1}, std::pair{dtypes::int8, dtypes::fp32}})
    for (const bool packed : {false, true}) {
      const auto made = [&](const Shape& shape, DType d) {
        return d.is_code() ? random_codes(shape, d, ++seed, Granularity::token()) : random_tensor(shape, d, ++seed);
      };
      const Tensor x = made({67, 70}, dx), bias = random_tensor({260}, dtypes::fp32, ++seed);
      Tensor w = made({260, 70}, dw);
      if (packed) {
        ProductForm form;
        form.x = form_of(x);
        form.w = form_of(w);
        const Layout layout = plan_product(form).w_layout;
        if (layout == layouts::canonical) continue;
        Tensor derived = Tensor::empty_layout(w.shape(), w.dtype(), layout, MemoryKind::kDerived);
        layout.info().pack(w.dtype(), w.rows(), w.cols(), w.data(), w.stride(), derived.data());
        w.attach_layout(derived);
      }
      const Tensor full = forward(detail::MatrixOperand(x), w, bias);
      for (const int64_t block : {1, 3, 16, 66, 67, 100})
        for (const int threads : {1, 3}) {
          set_num_threads(threads);
          INFO(dx << " x " << dw << (packed ? ", packed" : "") << ", blocks of " << block);
          CHECK(same_bits(bits_of(forward(CopiedRows(x, block), w, bias)), bits_of(full)));
        }
    }
  set_num_threads(before);
}

TEST_CASE("gw of an operand in blocks of rows is the sum over all of them") {
  // Small integers: fp32 and bf16 sums are exact in any order.
  const auto integers = [](const Shape& shape, uint64_t seed) {
    std::vector<double> numbers = random_numbers(dtypes::fp32, shape.numel(), seed, -4, 4);
    for (double& v : numbers) v = std::rint(v);
    return Tensor::from_elements(shape, dtypes::fp32, numbers);
  };
  const Tensor gy = integers({67, 9}, 1);
  for (const DType d : {dtypes::fp32, dtypes::bint1, dtypes::int4}) {
    const Tensor x = d == dtypes::fp32 ? integers({67, 33}, 2) : random_tensor({67, 33}, d, 3);
    const std::vector<double> vx = x.elements(), vg = gy.elements();
    const Product expected = product(
        9, 33, 67, [&](int64_t f, int64_t k) { return vg[static_cast<size_t>(k * 9 + f)]; },
        [&](int64_t n, int64_t k) { return vx[static_cast<size_t>(k * 33 + n)]; });
    for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16})
      for (const int64_t block : {1, 8, 66, 67, 80}) {
        INFO(d << ", mode " << enum_name(mode) << ", blocks of " << block);
        const auto into = [&](GradSlot& slot) {
          gradient_product(mode, {"gw", "x", gy, true, {}}, CopiedRows(x, block), slot);
        };
        CHECK(gradient_of({9, 33}, dtypes::fp32, into).elements() == expected.value);
        const Tensor rounded = Tensor::from_elements({9, 33}, dtypes::bf16, expected.value);
        CHECK(gradient_of({9, 33}, dtypes::bf16, into).elements() == rounded.elements());
      }
  }
}

TEST_CASE("gw of an operand in blocks adds to what its leaf has summed") {
  const Tensor gy = random_tensor({20, 4}, dtypes::fp32, 1), x = random_tensor({20, 6}, dtypes::fp32, 2);
  AccumulateSink sink;
  Tensor once;
  for (int i = 0; i < 2; ++i) {
    Tape tape;
    tape.backward(
        apply<Probe>({tape.leaf(Tensor::zeros({4, 6}, dtypes::fp32), &sink, dtypes::fp32)},
                     std::function<void(GradSlot&)>([&](GradSlot& slot) {
                       gradient_product(ProductMode::kFp32, {"gw", "x", gy, true, {}}, CopiedRows(x, 20), slot);
                     })));
    if (i == 0) once = sink.grad().clone(MemoryKind::kActivation);
  }
  const std::vector<double> a = once.elements(), b = sink.grad().elements();
  for (size_t i = 0; i < a.size(); ++i) CHECK(b[i] == a[i] + a[i]);
  AccumulateSink blocks;
  for (int i = 0; i < 2; ++i) {
    Tape tape;
    tape.backward(
        apply<Probe>({tape.leaf(Tensor::zeros({4, 6}, dtypes::fp32), &blocks, dtypes::fp32)},
                     std::function<void(GradSlot&)>([&](GradSlot& slot) {
                       gradient_product(ProductMode::kFp32, {"gw", "x", gy, true, {}}, CopiedRows(x, 7), slot);
                     })));
  }
  const std::vector<double> c = blocks.grad().elements();
  for (size_t i = 0; i < b.size(); ++i) CHECK(std::fabs(c[i] - b[i]) < 1e-5);
}

TEST_CASE("a form is checked for the modes of wanted gradients alone") {
  ProductForm form;
  form.x = {0, 64, dtypes::fp32};
  form.w = form_of(random_codes({8, 64}, dtypes::int8, 1, Granularity::groups(32)));
  form.modes.gx = form.modes.gw = ProductMode::kInt8;
  const auto error = [&] { return error_of([&] { check_modes(form); }); };
  CHECK(error() == "");
  form.gx = true;
  CHECK(contains(error(), "[linear] gx int8 needs per-channel scales; use bf16: got w [8,64] int8 per group(32)"));
  form.gx = false;
  form.gw = true;
  CHECK(contains(error(), "[linear] gw int8 multiplies codes: got x fp32, expected an int, uint or sign dtype"));
  form.x.dtype = dtypes::int8;
  CHECK(error() == "");
}
