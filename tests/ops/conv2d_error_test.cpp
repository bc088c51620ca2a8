// Convolutions at their limits: empty batches, windows wholly outside, NaN, and what they refuse.
#include "ops/conv_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string conv_error(const Tensor& x, const Tensor& w, const Conv2dOptions& options, const Tensor& bias = {},
                       const ProductModes& modes = {}) {
  return error_of([&] { conv2d(Var(x), Var(w), bias.defined() ? Var(bias) : Var(), options, modes); });
}

std::string gradient_error(const Tensor& x, const Tensor& w, const Conv2dOptions& options, const ProductModes& modes,
                           bool want_x, bool want_w) {
  Tape tape;
  AccumulateSink sink;
  return error_of([&] {
    conv2d(want_x ? tape.leaf(x, &sink, dtypes::fp32) : Var(x), want_w ? tape.leaf(w, &sink, dtypes::fp32) : Var(w),
           Var(), options, modes);
  });
}

DType no_zero() {
  return register_dtype({"conv2d_test_no_zero", 2, DTypeKind::kCodebook, 0, 0, {-1.0f, -0.25f, 0.5f, 1.0f}});
}

const Conv2dOptions kThree = {.kernel = {3, 3}, .padding = {1, 1, 1, 1}};

}  // namespace

TEST_CASE("conv2d_output counts the windows, and reports where none fits") {
  Rng rng(12);
  for (int i = 0; i < 2000; ++i) {
    const ConvGeometry g = random_geometry(rng);
    // Counted: the windows that begin inside the padded map and end in it.
    std::array<int64_t, 2> count{};
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t size = (axis == 0 ? g.h : g.w) + g.options.padding[axis] + g.options.padding[axis + 2];
      for (int64_t at = 0; at < size; at += g.options.stride[axis])
        count[axis] += at + (g.options.kernel[axis] - 1) * g.options.dilation[axis] < size;
    }
    INFO(g.text());
    CHECK(conv2d_output(g.h, g.w, g.options) == count);
  }
  CHECK(conv2d_output(1, 1, {}) == std::array<int64_t, 2>{1, 1});
  CHECK(contains(error_of([] { conv2d_output(2, 5, {.kernel = {3, 3}}); }), "[conv2d]"));
  CHECK(error_of([] { conv2d_output(5, 4, {.kernel = {3, 3}, .dilation = {1, 2}}); }) != "");
  CHECK(error_of([] { conv2d_output(5, 5, {.kernel = {3, 3}, .dilation = {1, 2}}); }) == "");
}

TEST_CASE("same_padding gives ceil(size / stride) windows, the larger half at the end, as TensorFlow") {
  for (int64_t size = 1; size <= 17; ++size)
    for (int64_t kernel = 1; kernel <= 5; ++kernel)
      for (int64_t stride = 1; stride <= 3; ++stride)
        for (int64_t dilation = 1; dilation <= 3; ++dilation) {
          Conv2dOptions options{.kernel = {kernel, 1}, .stride = {stride, 1}, .dilation = {dilation, 1}};
          options.padding = {3, 3, 3, 3};
          const std::array<int64_t, 4> p = same_padding(size, 6, options);
          const int64_t total =
              std::max<int64_t>(((size + stride - 1) / stride - 1) * stride + (kernel - 1) * dilation + 1 - size, 0);
          INFO("size " << size << ", kernel " << kernel << ", stride " << stride << ", dilation " << dilation);
          CHECK(p == std::array<int64_t, 4>{total / 2, 0, total - total / 2, 0});
          options.padding = p;
          CHECK(conv2d_output(size, 6, options)[0] == (size + stride - 1) / stride);
        }
  // A map of 32, a kernel of 3 with stride 2: nothing above and left, a pixel below and right.
  CHECK(same_padding(32, 32, {.kernel = {3, 3}, .stride = {2, 2}}) == std::array<int64_t, 4>{0, 0, 1, 1});
}

TEST_CASE("empty batches and no outputs give empty results and zero gradients") {
  for (const DType dx : {dtypes::fp32, dtypes::int8, dtypes::bint1})
    for (const DType dw : {dtypes::fp32, dtypes::int4, dtypes::bint1})
      for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8}) {
        ProductModes modes;
        if (mode != ProductMode::kInt8 || integer_kind(dw)) modes.gx = mode;
        if (mode != ProductMode::kInt8 || integer_kind(dx)) modes.gw = mode;
        const auto empty = [&](int64_t n, int64_t o) {
          const ConvGeometry g{n, 5, 4, 7, o, kThree};
          const LinearRun run =
              run_conv({g, Tensor::zeros(g.x_shape(), dx), Tensor::zeros(g.w_shape(), dw),
                        Tensor::zeros({o}, dtypes::fp32), Tensor::zeros(g.y_shape(), dtypes::fp32), modes});
          CHECK(run.y.shape() == g.y_shape());
          CHECK(run.gx.shape() == g.x_shape());
          CHECK(run.gx.elements() == std::vector<double>(static_cast<size_t>(g.x_shape().numel()), 0.0));
          CHECK(run.gw.elements() == std::vector<double>(static_cast<size_t>(g.w_shape().numel()), 0.0));
          CHECK(run.gb.elements() == std::vector<double>(static_cast<size_t>(o), 0.0));
        };
        empty(0, 6);
        empty(2, 0);
      }
}

TEST_CASE("windows and taps that see nothing but pixels outside give the bias, and no gradient") {
  // One pixel, kernels of three and five with padding: most taps never see it. Stride 3: whole windows outside.
  for (const DType dx : {dtypes::bint1, dtypes::ternary, dtypes::uint8, dtypes::nf4, no_zero(), dtypes::fp32})
    for (const DType dw : {dtypes::bint1, dtypes::int4, dtypes::fp32})
      for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
        if (zero == ZeroKind::kInteger && !integer_kind(dx)) continue;
        ConvCase c;
        c.g = {2, 1, 2, 5, 11, {.kernel = {5, 3}, .stride = {3, 3}, .padding = {4, 4, 4, 4}}};
        c.x = dx.is_code() ? random_codes(c.g.x_shape(), dx, 21, {}, zero) : random_tensor(c.g.x_shape(), dx, 21);
        if (zero == ZeroKind::kInteger) {  // a code
          QuantParams params = *c.x.quant();
          params.zero = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::int32, 1));
          c.x = c.x.with_quant(std::make_shared<const QuantParams>(std::move(params)));
        }
        c.w = random_tensor(c.g.w_shape(), dw, 22);
        c.gy = random_tensor(c.g.y_shape(), dtypes::fp32, 23);
        c.bias = random_tensor({c.g.o}, dtypes::fp32, 24);
        const LinearRun run = run_conv(c);
        const std::string text = wrong(c, run);
        if (!text.empty()) FAIL_CHECK(text);
        // The first window lies wholly above the image.
        for (int64_t j = 0; j < c.g.o; ++j) CHECK(run.y.as<float>()[j] == c.bias.as<float>()[j]);
        // The last tap of the first row never meets a pixel.
        std::vector<bool> met(static_cast<size_t>(c.g.taps()));
        for_taps(c.g, [&](int64_t, int64_t tap, int64_t pixel) {
          if (pixel >= 0) met[static_cast<size_t>(tap)] = true;
        });
        CHECK(std::count(met.begin(), met.end(), false) > 0);
        for (int64_t e = 0; e < run.gw.numel(); ++e)
          if (!met[static_cast<size_t>(e % c.g.k() / c.g.c)] && run.gw.as<float>()[e] != 0)
            FAIL_CHECK(describe(c) << ": gw[" << e << "] is " << run.gw.as<float>()[e]);
      }
}

TEST_CASE("int8 mode: a NaN or Inf of the gradient spoils its own image of gx and its own channel of gw") {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    ConvCase c;
    c.g = {3, 4, 5, 6, 7, kThree};
    c.x = random_codes(c.g.x_shape(), dtypes::int8, 31);
    c.w = random_codes(c.g.w_shape(), dtypes::int4, 32, Granularity::channel(0));
    c.gy = random_tensor(c.g.y_shape(), dtypes::fp32, 33);
    c.modes.gx = c.modes.gw = ProductMode::kInt8;
    const int64_t image = 1, channel = 4;
    c.gy.as<float>()[(image * 20 + 13) * 7 + channel] = bad;
    const LinearRun run = run_conv(c);
    bool right = true;
    for (int64_t e = 0; e < run.gx.numel(); ++e)
      right = right && std::isnan(run.gx.as<float>()[e]) == (e / (4 * 5 * 6) == image);
    for (int64_t e = 0; e < run.gw.numel(); ++e)
      right = right && std::isnan(run.gw.as<float>()[e]) == (e / (9 * 6) == channel);
    CHECK(right);
  }
}

TEST_CASE("operands that do not fit a convolution are errors that name both") {
  const Tensor x = random_tensor({2, 5, 4, 6}, dtypes::fp32, 1), w = random_tensor({3, 54}, dtypes::fp32, 2);
  CHECK(conv_error(x, w, kThree) == "");
  const auto names = [](const std::string& error, const std::vector<std::string>& parts) {
    INFO(error);
    bool all = error.rfind("[conv2d]", 0) == 0;
    for (const std::string& part : parts) all = all && contains(error, part);
    CHECK(all);
  };
  names(conv_error(random_tensor({5, 4, 6}, dtypes::fp32, 3), w, kThree), {"[5,4,6] fp32"});
  names(conv_error(x, random_tensor({3, 9, 6}, dtypes::fp32, 3), kThree), {"[3,9,6] fp32"});
  names(conv_error(x, random_tensor({3, 53}, dtypes::fp32, 4), kThree), {"54", "53"});
  names(conv_error(x, w, kThree, random_tensor({4}, dtypes::fp32, 5)), {"bias must be [3] fp32", "[4] fp32"});
  if (current_device().is_cpu())  // a device refuses fp64 before
    names(conv_error(x, w, kThree, random_tensor({3}, dtypes::fp64, 5)), {"bias must be [3] fp32", "[3] fp64"});
  if (current_device().is_cpu())  // a device refuses fp64 before
    names(conv_error(random_tensor({2, 5, 4, 6}, dtypes::fp64, 6), w, kThree), {"fp64"});
  // Windows.
  names(conv_error(random_tensor({2, 2, 4, 6}, dtypes::fp32, 8), w, {.kernel = {3, 3}}), {"2", "3"});
  names(conv_error(x, w, {.kernel = {3, 3}, .dilation = {1, 2}}), {"4", "5"});
}

TEST_CASE("options of a convolution out of range are errors that name the option and its value") {
  const Tensor x = random_tensor({2, 5, 4, 6}, dtypes::fp32, 1), w = random_tensor({6, 54}, dtypes::fp32, 2);
  const auto refused = [&](const Conv2dOptions& options, const std::string& option, const std::string& value) {
    const std::string error = conv_error(x, w, options);
    INFO(error);
    CHECK((error.rfind("[conv2d]", 0) == 0 && contains(error, option) && contains(error, value)));
  };
  refused({.kernel = {0, 3}, .padding = {1, 1, 1, 1}}, "kernel", "0");
  refused({.kernel = {3, -1}, .padding = {1, 1, 1, 1}}, "kernel", "-1");
  refused({.kernel = {3, 3}, .stride = {0, 1}}, "stride", "0");
  refused({.kernel = {3, 3}, .stride = {1, -2}}, "stride", "-2");
  refused({.kernel = {3, 3}, .dilation = {1, 0}}, "dilation", "0");
  refused({.kernel = {3, 3}, .padding = {0, -1, 0, 0}}, "padding", "-1");
  refused({.kernel = {3, 3}, .padding = {0, 0, 1 << 20, 0}}, "padding", "1048576");
  refused({.kernel = {3, 3}, .padding = {1, 1, 1, 1}, .pad_value = 2}, "pad_value", "2");
  refused({.kernel = {3, 3}, .groups = 0}, "groups", "0");
  refused({.kernel = {3, 3}, .groups = -3}, "groups", "-3");
  refused({.kernel = {3, 3}, .groups = 4}, "groups", "4");  // 6 channels
  refused({.kernel = {3, 3}, .stride = {int64_t{1} << 62, 1}}, "stride", "4611686018427387904");
  refused({.kernel = {int64_t{1} << 40, int64_t{1} << 40}}, "kernel", "1099511627776");
  // Four outputs in three groups.
  const std::string error = conv_error(x, random_tensor({4, 18}, dtypes::fp32, 3), {.kernel = {3, 3}, .groups = 3});
  INFO(error);
  CHECK((contains(error, "[conv2d]") && contains(error, "groups") && contains(error, "4") && contains(error, "3")));
}

TEST_CASE("invalid pad codes of x, and scales that differ within a window, are errors") {
  const Tensor w = random_codes({3, 54}, dtypes::int4, 2);
  Conv2dOptions ones = kThree;
  for (const int value : {-1, 1}) {
    ones.pad_value = value;
    for (const DType d : {dtypes::int8, dtypes::uint4, dtypes::ternary, dtypes::nf4, dtypes::int32}) {
      const std::string error = conv_error(random_tensor({2, 5, 4, 6}, d, 3), w, ones);
      INFO(error);
      CHECK(
          (error.rfind("[conv2d]", 0) == 0 && contains(error, "pad_value") && contains(error, std::string(d.name()))));
    }
    for (const DType d : {dtypes::bint1, dtypes::fp32, dtypes::bf16})
      CHECK(conv_error(random_tensor({2, 5, 4, 6}, d, 3), w, ones) == "");
    CHECK(contains(conv_error(random_codes({2, 5, 4, 6}, dtypes::bint1, 3, {}, ZeroKind::kReal), w, ones),
                   "[conv2d] pad_value " + std::to_string(value) + ": x is [2,5,4,6] bint1"));
  }
  for (const Granularity& g :
       {Granularity::token(), Granularity::channel(0), Granularity::groups(4), Granularity::groups(2, 0)}) {
    const std::string error = conv_error(random_codes({2, 5, 4, 6}, dtypes::int8, 4, g), w, kThree);
    std::ostringstream name;
    name << g;
    INFO(error);
    CHECK((error.rfind("[conv2d]", 0) == 0 && contains(error, name.str())));
  }
}

TEST_CASE("a zero point that is not a code of x is an error where pixels outside need its code") {
  const auto with_zeros = [](DType d, const std::vector<double>& zeros) {
    const Granularity g = zeros.size() == 1 ? Granularity{} : Granularity::channel(1);
    const Tensor x = random_codes({2, 5, 4, 6}, d, 3, g, ZeroKind::kInteger);
    QuantParams params = *x.quant();
    params.zero = std::make_shared<const Tensor>(
        Tensor::from_elements({static_cast<int64_t>(zeros.size())}, dtypes::int32, zeros));
    return x.with_quant(std::make_shared<const QuantParams>(std::move(params)));
  };
  const Tensor full = random_codes({6, 54}, dtypes::int4, 2), depthwise = random_codes({6, 9}, dtypes::int4, 2);
  const Conv2dOptions inside{.kernel = {3, 3}};
  Conv2dOptions groups = kThree;
  groups.groups = 6;
  const struct {
    DType dtype;
    int64_t lo, hi;
  } dtypes_of[] = {{dtypes::uint8, 0, 255}, {dtypes::int8, -128, 127}, {dtypes::uint4, 0, 15}, {dtypes::int4, -8, 7}};
  for (const auto& [d, lo, hi] : dtypes_of)
    for (const int64_t bad : {lo - 1, lo - 2, hi + 1}) {
      const auto b = static_cast<double>(bad);
      for (const Tensor& x : {with_zeros(d, {b}), with_zeros(d, {1, 2, 3, 0, 1, b})}) {
        const std::string text =
            concat("[conv2d] x [2,5,4,6] ", d, " has no code for pixels outside: a zero point is not among the codes ",
                   lo, " to ", hi, ". Use zero points that are codes, or no padding");
        CHECK(conv_error(x, full, kThree) == text);
        CHECK(conv_error(x, depthwise, groups) == text);
        CHECK(conv_error(x, full, inside) == "");
      }
    }
  for (const auto& [d, lo, hi] : dtypes_of)
    for (const int64_t good : {lo, hi})
      CHECK(conv_error(with_zeros(d, {static_cast<double>(good)}), full, kThree) == "");
}

TEST_CASE("groups of a convolution that cut blocks of scales are errors") {
  const Tensor x = random_tensor({2, 5, 4, 6}, dtypes::fp32, 1);
  Conv2dOptions three = kThree;
  three.groups = 3;
  CHECK(
      conv_error(x, random_codes({6, 18}, dtypes::int4, 2, Granularity::groups(4, 0)), three) ==
      "[conv2d] w [6,18] int4 has scales per group(0,4), which the 3 groups of 2 outputs cut. Use a size that divides "
      "2, or scales per channel(0)");
  CHECK(conv_error(x, random_codes({6, 18}, dtypes::int4, 2, Granularity::groups(2, 0)), three) == "");
}

TEST_CASE("unsupported int8 gradients of a convolution name an alternative before the forward") {
  const Tensor x = random_codes({2, 5, 4, 64}, dtypes::int8, 1), floats = random_tensor({2, 5, 4, 64}, dtypes::fp32, 2),
               w = random_codes({3, 576}, dtypes::int4, 3, Granularity::channel(0)),
               grouped = random_codes({3, 576}, dtypes::int4, 4, Granularity::groups(32)),
               offset = random_codes({3, 576}, dtypes::int4, 5, Granularity::channel(0), ZeroKind::kReal);
  ProductModes gx, gw;
  gx.gx = ProductMode::kInt8;
  gw.gw = ProductMode::kInt8;
  const auto says = [](const std::string& error, const std::string& part) {
    INFO(error);
    CHECK((error.rfind("[conv2d]", 0) == 0 && contains(error, part)));
  };
  says(gradient_error(x, grouped, kThree, gx, true, false), "gx int8 needs per-channel scales; use bf16");
  ProductModes asked = gx;
  asked.gx_per_group = true;
  for (const ProductModes& modes : {gx, asked})
    CHECK(gradient_error(x, random_codes({3, 576}, dtypes::int4, 8, Granularity::groups(64)), kThree, modes, true,
                         false) ==
          "[conv2d] gx int8 needs per-channel scales; use bf16: got w [3,576] int4 per group(64), expected scales per "
          "tensor or channel(0).");
  says(
      gradient_error(random_codes({2, 5, 4, 64}, dtypes::int8, 9, Granularity::groups(32)), w, kThree, gw, false, true),
      "gw int8 needs scales per tensor or channel(1); use bf16: got x [40,64] int8 per group(32).");
  says(gradient_error(x, random_codes({3, 576}, dtypes::int4, 7, Granularity::channel(1)), kThree, gx, true, false),
       "gx int8 needs scales of w per tensor or channel(0); use bf16: got w per channel(1)");
  says(gradient_error(x, offset, kThree, gx, true, false), "gx int8 has no real offsets; use bf16");
  says(gradient_error(floats, w, kThree, gw, false, true), "gw int8 multiplies codes");
  says(gradient_error(random_codes({2, 5, 4, 64}, dtypes::int8, 6, {}, ZeroKind::kReal), w, kThree, gw, false, true),
       "gw int8 has no real offsets; use bf16");
  // Nothing is asked of operands whose gradient nobody wants.
  CHECK(gradient_error(floats, w, kThree, gw, true, false) == "");
  CHECK(gradient_error(x, grouped, kThree, gx, false, true) == "");
}

TEST_CASE("integer_conv2d names unsupported arguments") {
  const Tensor x = random_codes({2, 5, 4, 6}, dtypes::int8, 1), w = random_codes({3, 54}, dtypes::int8, 2);
  const auto says = [](const Tensor& a, const Tensor& b, const std::string& part, const Tensor& bias = {}) {
    const std::string error =
        error_of([&] { integer_conv2d(Var(a), Var(b), bias.defined() ? Var(bias) : Var(), kThree); });
    INFO(error);
    CHECK((error.rfind("[integer_conv2d]", 0) == 0 && contains(error, part)));
  };
  says(random_codes({2, 5, 4, 6}, dtypes::uint8, 3, {}, ZeroKind::kInteger), w, "zero point");
  says(x, random_codes({3, 54}, dtypes::int8, 4, {}, ZeroKind::kReal), "real offset");
  says(x, random_codes({3, 54}, dtypes::int8, 5, Granularity::groups(6)), "group(6)");
  says(random_codes({2, 5, 4, 6}, dtypes::int8, 6, Granularity::channel(1)), w, "channel(1)");
  says(random_tensor({2, 5, 4, 6}, dtypes::fp32, 7), w, "fp32");
  says(x, random_tensor({3, 54}, dtypes::fp32, 8), "fp32");
  says(x, w, "bias must be [3] fp32", random_tensor({2}, dtypes::fp32, 9));
  says(x, w, "bias[1] is nan", Tensor::from_elements({3}, dtypes::fp32, std::vector<double>{0, NAN, 0}));
  // 131,071 products of int8 fit int32.
  const int64_t channels = 32768;
  const Conv2dOptions two{.kernel = {2, 2}};
  const Tensor wide = Tensor::zeros({1, 2, 2, channels}, dtypes::int8),
               weights = Tensor::zeros({1, 4 * channels}, dtypes::int8);
  const std::string error = error_of([&] { integer_conv2d(Var(wide), Var(weights), Var(), two); });
  INFO(error);
  CHECK((contains(error, "131072") && contains(error, "131071") && contains(error, "overflow int32")));
}
