// Parameters with a bf16 master, or none: first values, requantization in blocks of rows, writing rows, resume.
#include <cmath>

#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/nn/requantization.h"
#include "nn/nn_support.h"
#include "nn/row_params.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

ParameterSpec with_master(QuantSpec quant, MasterKind master, const Granularity& granularity = {}) {
  quant.granularity = granularity;
  ParameterSpec spec = weight_spec(quant);
  spec.master = master;
  return spec;
}

Tensor drawn(const Shape& shape, const char* path, uint64_t seed) {
  Tensor x = Tensor::zeros(shape, dtypes::fp32);
  initialize_part({"uniform", -1, 1}, seed, path, shape, 0, x);
  return x;
}

struct Held {
  QuantSpec quant;
  Granularity granularity;
};
std::vector<Held> forms() {
  return {{quant_spec(dtypes::int4, "symmetric"), Granularity::tensor()},
          {quant_spec(dtypes::int4, "affine", Rounding::kStochastic), Granularity::channel(0)},
          {quant_spec(dtypes::int8, "minmax_offset"), Granularity::groups(100)},
          {quant_spec(dtypes::int8, "absmax"), Granularity::groups(7, 0)},
          {quant_spec(dtypes::int3, "absmax"), Granularity::channel(1)},
          {quant_spec(dtypes::bint1, "binary"), Granularity::tensor()},
          {quant_spec(dtypes::ternary, "ternary", Rounding::kStochastic), Granularity::token()},
          {quant_spec(dtypes::nf4, "codebook"), Granularity::groups(64)}};
}

}  // namespace

TEST_CASE("codes without a master are those of a master with the same draws, in any number of blocks of rows") {
  for (const Held& form : forms())
    for (const Shape& shape : {Shape{5, 70}, Shape{230, 301}, Shape{1, 1}, Shape{0, 4}}) {
      Parameter with(shape, with_master(form.quant, MasterKind::kFp32, form.granularity)),
          without(shape, with_master(form.quant, MasterKind::kNone, form.granularity));
      with.initialize("w", 4);
      without.initialize("w", 4);
      INFO(with.value().describe());
      CHECK_FALSE(without.has_master());
      CHECK(without.value().elements() == with.value().elements());
      CHECK(without.value().values() == with.value().values());
      const auto before = without.value().elements();
      without.requantize(4, 3);
      CHECK(without.value().elements() == before);
    }
}

TEST_CASE("a bf16 master is the nearest to the draws, and its codes are the quantizer's answer to it") {
  for (const Held& form : forms()) {
    const Shape shape{230, 301};
    Parameter p(shape, with_master(form.quant, MasterKind::kBf16, form.granularity));
    p.initialize("w", 4);
    INFO(p.value().describe());
    CHECK(p.master().dtype() == dtypes::bf16);
    CHECK(p.master().bytes() == shape.numel() * 2);
    const Tensor x = drawn(shape, "w", 4);
    for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = bf16_to_float(bf16_from_float(x.as<float>()[i]));
    CHECK(p.master().elements() == x.elements());
    for (const int64_t step : {0, 7}) {
      p.requantize(4, step);
      const RandomStream draws{4, Purpose::kRequantize, site_id("w"), static_cast<uint32_t>(step)};
      QuantizeOptions options;
      options.sr = &draws;
      QuantSpec quant = form.quant;
      quant.granularity = form.granularity;
      const Tensor expected = quantize_dynamic(quant, x, options);
      CHECK(p.value().elements() == expected.elements());
      CHECK(p.value().values() == expected.values());
    }
    // The old scales live on with who holds them.
    const Tensor held = p.value();
    if (!held.quant()->scale || form.quant.scheme == "binary") continue;
    const auto scales = held.quant()->scale->elements();
    for (int64_t i = 0; i < x.numel(); ++i) p.master().as<uint16_t>()[i] = bf16_from_float(2 * x.as<float>()[i]);
    p.requantize(4, 8);
    CHECK(held.quant()->scale->elements() == scales);
    CHECK(p.value().quant()->scale->elements() != scales);
  }
}

// [cpu]: a device codes all rows in one sweep
TEST_CASE("blocks of rows are widened where rows are apart, and the whole where they are not", "[cpu]") {
  const Shape shape{1024, 256};
  for (const bool apart : {true, false}) {
    Parameter p(shape, with_master(quant_spec(dtypes::int8, "absmax"), MasterKind::kBf16,
                                   apart ? Granularity::channel(0) : Granularity::tensor()));
    p.initialize("w", 1);
    reset_memory_peaks();
    const int64_t before = memory_now()[MemoryKind::kWorkspace];
    p.requantize(1, 1);
    const int64_t peak = memory_peak_by_kind()[MemoryKind::kWorkspace] - before;
    CHECK((peak <= 1 << 19) == apart);
    CHECK(peak >= (apart ? 1 << 17 : 1 << 20));
  }
}

TEST_CASE("rows are coded with scales of their own, in any order, rounded by the draws of their elements") {
  const Shape shape{9, 70};
  for (const Held& form : {Held{quant_spec(dtypes::int4, "affine"), Granularity::channel(0)},
                           Held{quant_spec(dtypes::uint4, "minmax_offset"), Granularity::groups(32)},
                           Held{quant_spec(dtypes::int8, "fixed"), Granularity::tensor()},
                           Held{quant_spec(dtypes::bint1, "binary"), Granularity::tensor()}}) {
    Parameter p(shape, with_master(form.quant, MasterKind::kNone, form.granularity));
    p.initialize("w", 1);
    p.memory().add_layout(layouts::planes);
    INFO(p.value().describe());
    const Tensor old = p.value();
    const Tensor x = random_tensor(shape, dtypes::fp32, 8, -3, 5);
    const RandomStream draws{9, Purpose::kUpdate, site_id("w"), 12};
    Requantization codes(p, draws);
    const auto rows = [&](int64_t begin, int64_t end) { codes.put_rows(begin, x.row_slice(begin, end)); };
    rows(7, 9);
    rows(0, 3);
    CHECK(p.value().quant() == old.quant());
    rows(3, 7);
    CHECK(contains(error_of([&] { codes.put_rows(7, x.row_slice(0, 4)); }), "[put_rows] rows of 'w'"));
    if (form.quant.scheme == "fixed" && !runs_on_device()) {  // layouts while the codes are at hand, or at the end
      codes.pack_rows(0, 9);
      CHECK(p.value().in_layout(layouts::planes).elements() == p.value().elements());
    }
    CHECK(contains(error_of([&] { Requantization(p, draws).finish(); }), "0 of 9 rows"));
    codes.finish();
    QuantSpec quant = form.quant;
    quant.granularity = form.granularity;
    if (quant.scheme != "binary") quant.rounding = Rounding::kStochastic;
    QuantizeOptions options;
    options.sr = &draws;
    const auto expected = quantize_dynamic(quant, x, options).values();
    CHECK(p.value().values() == expected);
    CHECK(p.value().in_layout(layouts::planes).values() == expected);
    CHECK(detail::rows_of(p.value(), 3, 7).values() ==
          std::vector<double>(expected.begin() + 210, expected.begin() + 490));
    CHECK(contains(error_of([&] { rows(0, 3); }), "after finish"));
  }
  Parameter spanned(shape, with_master(quant_spec(dtypes::int8, "absmax"), MasterKind::kNone));
  spanned.initialize("w", 1);
  CHECK(contains(error_of([&] { Requantization(spanned, RandomStream{}); }), "has a master, or scales that span rows"));
}

TEST_CASE("rows of a value share its bytes and have their scales") {
  for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                               Granularity::token(), Granularity::groups(20), Granularity::groups(3, 0)}) {
    Parameter p({10, 70}, with_master(quant_spec(dtypes::int4, "affine"), MasterKind::kFp32, g));
    p.initialize("w", 1);
    const auto all = p.value().values();
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 10}, {3, 6}, {9, 10}, {6, 10}, {3, 3}}) {
      const Tensor rows = detail::rows_of(p.value(), begin, end);
      INFO(g << ", rows " << begin << " to " << end);
      CHECK(rows.values() == std::vector<double>(all.begin() + begin * 70, all.begin() + end * 70));
      CHECK(rows.data() == static_cast<const char*>(p.value().data()) + begin * p.value().stride());
    }
  }
}

TEST_CASE("parameters of every kind of master come back byte for byte") {
  for (const MasterKind kind : {MasterKind::kBf16, MasterKind::kNone}) {
    const auto spec = with_master(quant_spec(dtypes::int4, "affine"), kind, Granularity::channel(0));
    Parameter p({5, 70}, spec), q({5, 70}, spec);
    p.initialize("w", 1);
    q.initialize("w", 2);
    CHECK(p.value().values() != q.value().values());
    q.restore({p.master(), p.value()});
    CHECK(q.value().values() == p.value().values());
    if (p.has_master()) CHECK(q.master().elements() == p.master().elements());
    const Tensor wide = Tensor::zeros({5, 70}, dtypes::fp32);
    const std::string text = error_of([&] { q.restore({wide, p.value()}); });
    CHECK(text == (kind == MasterKind::kBf16 ? "[restore] the master of 'w' is [5,70] bf16, got [5,70] fp32"
                                             : "[restore] parameter 'w' has no master, got [5,70] fp32"));
  }
}

TEST_CASE("a bf16 master with NaN is an error that names the parameter") {
  for (const Held& form : forms()) {
    Parameter p({5, 70}, with_master(form.quant, MasterKind::kBf16, form.granularity));
    p.initialize("layers.0.weight", 1);
    p.master().as<uint16_t>()[300] = bf16_from_float(NAN);
    CHECK(error_of([&] { p.requantize(1, 3); }) ==
          "[requantize] the master of 'layers.0.weight' ([5,70] bf16) holds NaN or Inf at optimizer step 3");
  }
}

TEST_CASE("a part of a tensor is drawn as the whole is") {
  const Shape shape{7, 33};
  for (const std::string_view name : init_names()) {
    const Init init{std::string(name), -0.5, 1.5};
    const Tensor full = Tensor::zeros(shape, dtypes::fp32), part = Tensor::zeros({2, 33}, dtypes::fp32);
    initialize_part(init, 3, "p", shape, 0, full);
    initialize_part(init, 3, "p", shape, 4 * 33, part);
    const auto all = full.elements();
    CHECK(part.elements() == std::vector<double>(all.begin() + 4 * 33, all.begin() + 6 * 33));
  }
}

TEST_CASE("the sharpness of rule tanh follows the progress of the run") {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::bint1, "binary"));
  spec.quant->ste = SteRule::kTanh;
  Parameter p({2, 3}, spec);
  p.initialize("w", 1);
  for (const double progress : {0.0, 0.25, 1.0}) {
    p.change([&](ParameterSpec& s) { s.quant->ste_t = annealed_t(*s.quant, progress); });
    CHECK(p.spec().quant->ste_t == annealed_t(*spec.quant, progress));
  }
  Parameter other({2, 3}, weight_spec(quant_spec(dtypes::bint1, "binary")));
  other.initialize("w", 1);
  other.change([&](ParameterSpec& s) { s.quant->ste_t = annealed_t(*s.quant, 0.5); });
  CHECK(other.spec().quant->ste_t == 1.0f);
}
