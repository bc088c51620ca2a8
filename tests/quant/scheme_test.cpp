// Every scheme on every dtype and granularity: scales, zero points, codes, masks and values equal the formulas of
// docs/numerics.md.
#include "bitgrad/dtype/codec.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::BlockParams;

const std::vector<Granularity>& granularities() {
  static const std::vector<Granularity> all = {
      Granularity::tensor(),     Granularity::channel(0),  Granularity::channel(1), Granularity::token(),
      Granularity::groups(1),    Granularity::groups(3),   Granularity::groups(64), Granularity::groups(1000),
      Granularity::groups(2, 0), Granularity::groups(4, 0)};
  return all;
}

std::string describe(const QuantSpec& spec, const Shape& shape) {
  return concat(spec.scheme, ' ', spec.dtype, " per ", spec.granularity, ' ', shape, spec.pow2 ? " pow2" : "",
                spec.scale_dtype == dtypes::fp16 ? " fp16" : "", spec.div ? " div" : "", spec.alpha ? " alpha" : "",
                " scale ", spec.scale, " offset ", spec.offset);
}

// First difference between what bitgrad makes of x and the formulas, "" when there is none.
std::string difference(const QuantSpec& spec, const Shape& shape, const std::vector<float>& x) {
  const int64_t rows = shape.rows(), cols = shape.cols();
  const std::vector<BlockParams> blocks = test::fit_blocks(spec, x, rows, cols);
  const Tensor input = test::tensor_of(shape, x);
  Tensor mask;
  QuantizeOptions options;
  options.mask = &mask;
  const Tensor t = quantize_dynamic(spec, input, options);
  if (t.dtype() != spec.dtype || !(t.shape() == shape) || !t.quant() || t.quant()->scheme != spec.scheme)
    return "wrong head";
  const QuantParams& params = *t.quant();
  const bool constant =
      spec.scheme == "fixed" || spec.scheme == "dorefa_activation" || (spec.scheme == "binary" && !spec.alpha);
  for (size_t j = 0; j < blocks.size(); ++j) {
    const size_t at = constant ? 0 : j;
    const float s = params.scale ? params.scale->as<float>()[at] : 1.0f,
                m = params.offset ? params.offset->as<float>()[at] : 0.0f;
    const int32_t z = params.zero ? params.zero->as<int32_t>()[at] : 0;
    const float statistic = params.statistic ? params.statistic->as<float>()[at] : 0.0f;
    if (statistic != blocks[j].statistic)
      return concat("block ", j, ": got statistic ", statistic, ", expected ", blocks[j].statistic);
    if (s != blocks[j].s || m != blocks[j].m || z != blocks[j].z)
      return concat("block ", j, ": got s ", s, " m ", m, " z ", z, ", expected ", blocks[j].s, ' ', blocks[j].m, ' ',
                    blocks[j].z);
  }
  const std::vector<double> codes = t.elements(), values = t.values();
  const Tensor restored = dequantize_tensor(t);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const size_t e = static_cast<size_t>(r * cols + c);
      const BlockParams& p = blocks[static_cast<size_t>(test::block_of(spec.granularity, rows, cols, r, c))];
      const test::CodePass want = test::code_of(spec, p, x[e]);
      if (codes[e] != want.number)
        return concat("element ", e, " = ", x[e], ": got code ", codes[e], ", expected ", want.number);
      if (mask.defined() &&
          (load_raw(static_cast<const char*>(mask.data()) + r * mask.stride(), c, 1) == 1) != want.passes)
        return concat("element ", e, " = ", x[e], ": wrong mask bit");
      const float value = params.zero ? p.s * (static_cast<float>(want.number) - static_cast<float>(p.z))
                                      : p.s * static_cast<float>(want.number) + p.m;
      if (restored.as<float>()[e] != value || values[e] != static_cast<double>(value))
        return concat("element ", e, ": got value ", restored.as<float>()[e], " and ", values[e], ", expected ", value);
    }
  return "";
}

// What sums of the scheme's blocks may hold.
float largest_size(const QuantSpec& spec, int64_t n) {
  if (spec.scale_dtype == dtypes::fp16) return 5e3f;
  if (spec.scheme == "standardized_binary") return n == 1 ? 1e38f : 1e15f;
  if (spec.pow2) return 1e30f;
  for (const char* scheme : {"step", "binary", "ternary", "ternary_threshold", "lsq", "lsq_plus"})
    if (spec.scheme == scheme && n > 1) return 1e30f;
  return 1e38f;
}

std::vector<std::vector<float>> cases(const QuantSpec& spec, int64_t n) {
  std::vector<std::vector<float>> all;
  for (const float size : {1.0f, 3.0f, largest_size(spec, n), 1e-30f, 1e-40f})
    all.push_back(test::numbers_for_test(n, size, 3));
  all.push_back(std::vector<float>(static_cast<size_t>(n), 0.0f));
  std::vector<float> signs = all[0], positive = all[1];
  for (size_t i = 0; i < signs.size(); ++i) {
    signs[i] = -std::fabs(signs[i]) - 0.125f;
    positive[i] = std::fabs(positive[i]) + 0.25f;
  }
  all.push_back(signs);
  all.push_back(positive);
  all.push_back(std::vector<float>(static_cast<size_t>(n), -0.0f));
  return all;
}

void check_all(const QuantSpec& base, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes)
    for (const Granularity& g : granularities()) {
      QuantSpec spec = base;
      spec.granularity = g;
      if (!test::accepts(spec)) continue;
      for (const std::vector<float>& x : cases(spec, shape.numel())) {
        const std::string found = difference(spec, shape, x);
        if (!found.empty()) FAIL_CHECK(describe(spec, shape) << ": " << found);
      }
    }
}

TEST_CASE("every scheme makes the scales, codes, masks and values of its formula on every dtype and granularity") {
  const std::vector<QuantSpec> specs = test::all_specs();
  CHECK(specs.size() > 80);
  for (const QuantSpec& spec : specs) check_all(spec, {{1, 1}, {3, 67}});
  const std::vector<QuantSpec> special = test::special_specs();
  CHECK(special.size() > 60);
  for (const QuantSpec& spec : special) check_all(spec, {{1, 1}, {3, 67}});
}

TEST_CASE("the table tests cover every granularity that a scheme supports") {
  for (const QuantSpec& base : test::special_specs()) {
    size_t met = 0;
    for (const Granularity& g : granularities()) {
      QuantSpec spec = base;
      spec.granularity = g;
      met += test::accepts(spec);
    }
    const bool learned = !find_quantizer(base.scheme).learned(base).empty();
    INFO(base.scheme);
    CHECK(met == (learned ? 3u : (base.scheme == "standardized_binary" ? 6u : granularities().size())));
  }
}

TEST_CASE("8-bit codes with reduce_range are those of 7 bits in their own place") {
  for (const char* scheme : {"affine", "symmetric", "symmetric_no_clip", "absmax"})
    for (const DType dtype : {dtypes::int8, dtypes::uint8}) {
      QuantSpec spec;
      spec.scheme = scheme;
      spec.dtype = dtype;
      spec.reduce_range = true;
      if (!test::accepts(spec)) continue;
      check_all(spec, {{1, 1}, {3, 67}});
      const CodeLimits limits = code_limits(spec);
      CHECK(limits.lo == (dtype == dtypes::int8 ? -64 : 0));
      CHECK(limits.hi == (dtype == dtypes::int8 ? 63 : 127));
      spec.granularity = Granularity::token();
      for (const double q :
           quantize_dynamic(spec, test::tensor_of({3, 67}, test::numbers_for_test(201, 9, 4))).elements()) {
        CHECK(q >= static_cast<double>(limits.lo));
        CHECK(q <= static_cast<double>(limits.hi));
      }
    }
}

TEST_CASE("large and empty shapes keep to the formulas") {
  for (const char* scheme : {"absmax", "affine", "minmax_offset"}) {
    QuantSpec spec;
    spec.scheme = scheme;
    spec.dtype = dtypes::int4;
    check_all(spec, {{2, 1100}, {0, 4}, {3, 0}, {7}, {2, 3, 5}, {}});
  }
  QuantSpec spec;
  spec.dtype = dtypes::ternary;
  spec.scheme = "ternary";
  check_all(spec, {{2, 1100}, {1100, 3}, {0, 4}, {3, 0}});
  spec.dtype = dtypes::bint1;
  spec.scheme = "binary";
  spec.alpha = true;
  check_all(spec, {{2, 1100}, {1100, 3}, {0, 4}, {3, 0}});
  for (const QuantSpec& special : test::special_specs())
    if (special.dtype == dtypes::uint2 || special.dtype == dtypes::ternary || special.dtype == dtypes::bint1)
      check_all(special, {{2, 1100}, {0, 4}, {3, 0}, {7}, {2, 3, 5}, {}});
}

TEST_CASE("the modifiers pow2, div and fp16 scales, alpha, eps and constants keep to the formulas") {
  for (const QuantSpec& base : test::all_specs()) {
    if (base.dtype.bits() == 3 || base.dtype.bits() > 4) continue;
    QuantSpec spec = base;
    spec.pow2 = true;
    spec.alpha = spec.scheme == "binary";
    if (test::accepts(spec)) check_all(spec, {{2, 67}});
    for (const bool pow2 : {false, true}) {
      spec.pow2 = pow2;
      spec.scale_dtype = dtypes::fp16;
      if (test::accepts(spec)) check_all(spec, {{2, 67}});
    }
    spec = base;
    spec.div = true;
    if (test::accepts(spec)) check_all(spec, {{2, 67}});
    spec = base;
    spec.eps = 0.25f;
    check_all(spec, {{2, 67}});
    if (spec.scheme != "fixed") continue;
    spec = base;
    spec.scale = 0.3f;
    if (spec.dtype.kind() != DTypeKind::kCodebook) spec.offset = -0.7f;
    check_all(spec, {{2, 67}});
    spec.offset = 0;
    check_all(spec, {{2, 67}});
  }
}

TEST_CASE("scales that are all 1 are not stored, and others are quantizer state") {
  const Tensor x = test::tensor_of({2, 3}, {1, -2, 3, -4, 5, -6});
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  spec.granularity = Granularity::channel(0);
  CHECK(quantize_dynamic(spec, x).scale_map().trivial());
  CHECK(quantize_dynamic(spec, x).quant()->scheme == "binary");
  spec.alpha = true;
  CHECK(quantize_dynamic(spec, x).quant()->scale->as<float>()[1] == 5.0f);
  CHECK(quantize_dynamic(spec, x).quant()->scale->kind() == MemoryKind::kQuantState);
  spec = {};
  spec.scheme = "fixed";
  spec.dtype = dtypes::ternary;
  CHECK(quantize_dynamic(spec, x).scale_map().trivial());
  spec.scale = 2;
  CHECK(quantize_dynamic(spec, x).quant()->scale->numel() == 1);
  CHECK(quantize_dynamic(spec, x).scale_map().offset == nullptr);
}

TEST_CASE("hand-computed scales and codes") {
  QuantSpec spec;
  SECTION("int8 affine: lo = -1, hi = 3, s = 4/255, z = -128 + 64") {
    spec.scheme = "affine";
    const Tensor t = quantize_dynamic(spec, test::tensor_of({4}, {-1, 0, 3, 1}));
    CHECK(t.quant()->scale->as<float>()[0] == 4.0f / 255.0f);
    CHECK(t.quant()->zero->as<int32_t>()[0] == -64);
    CHECK(t.elements() == std::vector<double>{-128, -64, 127, 0});
  }
  SECTION("int4 symmetric: the largest number is on a tie, 7.5 rounds to 8 and is clipped") {
    spec.dtype = dtypes::int4;
    Tensor mask;
    QuantizeOptions options;
    options.mask = &mask;
    const Tensor t = quantize_dynamic(spec, test::tensor_of({3}, {7.5f, -7.5f, 1}), options);
    CHECK(t.elements() == std::vector<double>{7, -8, 1});
    CHECK(mask.elements() == std::vector<double>{-1, 1, 1});
  }
  SECTION("ternary by constants: FINN's two bits") {
    spec.scheme = "fixed";
    spec.dtype = dtypes::ternary;
    Tensor mask;
    QuantizeOptions options;
    options.mask = &mask;
    const Tensor t =
        quantize_dynamic(spec, test::tensor_of({8}, {0.5f, 0.51f, -0.5f, -0.51f, 1.5f, 1.49f, -1.5f, -0.0f}), options);
    CHECK(t.elements() == std::vector<double>{0, 1, 0, -1, 1, 1, -1, 0});
    CHECK(mask.elements() == std::vector<double>{1, 1, 1, 1, -1, 1, -1, 1});
  }
  SECTION("binary: minus zero is +1, abs x = 1 passes") {
    spec.scheme = "binary";
    spec.dtype = dtypes::bint1;
    Tensor mask;
    QuantizeOptions options;
    options.mask = &mask;
    const Tensor t =
        quantize_dynamic(spec, test::tensor_of({5}, {-0.0f, 0.0f, -1.0f, 1.0f, std::nextafter(1.0f, 2.0f)}), options);
    CHECK(t.elements() == std::vector<double>{1, 1, -1, 1, 1});
    CHECK(mask.elements() == std::vector<double>{1, 1, 1, 1, -1});
  }
  SECTION("int8 absmax never gives -128") {
    spec.scheme = "absmax";
    CHECK(quantize_dynamic(spec, test::tensor_of({2}, {-1, 0.5f})).elements() == std::vector<double>{-127, 64});
  }
}

TEST_CASE("views of rows and columns quantize like copies of them") {
  const std::vector<float> x = test::numbers_for_test(6 * 200, 2, 5);
  const Tensor full = test::tensor_of({6, 200}, x);
  const Tensor view = full.column_slice(64, 131).row_slice(1, 5);
  for (const Granularity& g : granularities()) {
    QuantSpec spec;
    spec.scheme = "affine";
    spec.dtype = dtypes::uint3;
    spec.granularity = g;
    const Tensor a = quantize_dynamic(spec, view), b = quantize_dynamic(spec, view.clone(MemoryKind::kActivation));
    CHECK(a.elements() == b.elements());
    CHECK(a.quant()->scale->elements() == b.quant()->scale->elements());
  }
}

TEST_CASE("codes are written into a given tensor, pad bits cleared") {
  const Tensor x = test::tensor_of({2, 3}, {1, -2, 3, -4, 5, -6});
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  Tensor into = Tensor::empty({2, 3}, dtypes::bint1, MemoryKind::kValue);
  std::fill_n(static_cast<uint8_t*>(into.data()), into.bytes(), uint8_t{0xFF});
  QuantizeOptions options;
  options.into = &into;
  const Tensor t = quantize_dynamic(spec, x, options);
  CHECK(t.data() == into.data());
  CHECK(into.elements() == std::vector<double>{1, -1, 1, -1, 1, -1});
  for (const int at : {0, 8}) CHECK(static_cast<uint8_t*>(into.data())[at] == (at == 0 ? 5 : 2));
  for (int i = 1; i < 8; ++i) CHECK(static_cast<uint8_t*>(into.data())[i] == 0);
  Tensor other = Tensor::empty({3, 2}, dtypes::bint1);
  options.into = &other;
  CHECK(test::contains(test::error_of([&] { quantize_dynamic(spec, x, options); }),
                       "got [3,2] bint1 in layout canonical, expected [2,3] bint1"));
}

}  // namespace
}  // namespace bitgrad
