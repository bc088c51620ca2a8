// Parameter: master, value, gradient, requantization, layouts, resume.
#include "bitgrad/nn/parameter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bitgrad/base/memory.h"
#include "bitgrad/nn/requantization.h"
#include "bitgrad/ops/ops.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("the value of a parameter is its quantizer's answer to its master, for every dtype") {
  for (const DType d : code_dtypes()) {
    const QuantSpec spec = usual_weight_spec(d);
    Parameter p({6, 70}, weight_spec(spec));
    p.initialize("layers.0.weight", 42);
    INFO(p.value().describe());
    CHECK(p.path() == "layers.0.weight");
    CHECK(p.low_bit());
    CHECK(p.master().dtype() == dtypes::fp32);
    CHECK(p.value().dtype() == d);
    CHECK(p.value().kind() == MemoryKind::kValue);
    CHECK(p.master().kind() == MemoryKind::kMaster);
    const Tensor expected = quantize_dynamic(spec, p.master());
    CHECK(p.value().elements() == expected.elements());
    CHECK(p.value().values() == expected.values());
  }
}

TEST_CASE("a float parameter is its own master and requantizing it changes nothing") {
  ParameterSpec spec;
  spec.init = {"normal", 0, 1};
  Parameter p({3, 5}, spec);
  p.initialize("bias", 1);
  CHECK_FALSE(p.low_bit());
  CHECK(p.master().data() == p.value().data());
  CHECK(p.value().kind() == MemoryKind::kMaster);
  const auto before = p.value().elements();
  p.requantize(1, 5);
  p.memory().add_layout(layouts::planes);
  CHECK(p.value().elements() == before);
  CHECK(p.value().attached_layouts().empty());
}

TEST_CASE("masters are drawn by seed and path, not by the order of creation") {
  const auto draw = [](const char* path, uint64_t seed) {
    Parameter p({4, 4}, weight_spec(quant_spec(dtypes::int4, "symmetric")));
    p.initialize(path, seed);
    return p.master().elements();
  };
  CHECK(draw("a", 1) == draw("a", 1));
  CHECK(draw("a", 1) != draw("b", 1));
  CHECK(draw("a", 1) != draw("a", 2));
}

TEST_CASE("stochastic codes depend on the step, and only on it") {
  const QuantSpec spec = quant_spec(dtypes::int4, "symmetric", Rounding::kStochastic);
  Parameter p({20, 33}, weight_spec(spec));
  p.initialize("w", 3);
  const auto first = p.value().elements();
  p.requantize(3, 1);
  const auto second = p.value().elements();
  CHECK(first != second);
  p.requantize(3, 0);
  CHECK(p.value().elements() == first);
  const RandomStream draws{3, Purpose::kRequantize, site_id("w"), 1};
  QuantizeOptions options;
  options.sr = &draws;
  CHECK(quantize_dynamic(spec, p.master(), options).elements() == second);
}

// [cpu]: no device has all layouts; those that it has: tests/kernels/pack_test.cpp, tests/cuda/frag64_test.cpp
TEST_CASE("all planned layouts are written by every requantization, in place", "[cpu]") {
  for (const DType d : {dtypes::bint1, dtypes::ternary, dtypes::int4}) {
    Parameter p({19, 100}, weight_spec(usual_weight_spec(d)));
    p.initialize("w", 3);
    std::vector<const void*> places;
    for (const Layout layout : all_layouts())
      if (layout.info().supports(d)) p.memory().add_layout(layout);
    p.memory().add_layout(layouts::planes);
    for (const Tensor& t : p.value().attached_layouts()) {
      CHECK(t.kind() == MemoryKind::kDerived);
      places.push_back(t.data());
    }
    CHECK(places.size() >= 2);
    const int64_t bytes = memory_now().total;
    for (int64_t i = 0; i < p.master().numel(); ++i) p.master().as<float>()[i] *= i % 3 == 0 ? -0.3f : 1.0f;
    const auto codes_before = p.value().elements();
    const Tensor held = p.value();
    p.requantize(3, 1);
    CHECK(p.value().elements() != codes_before);
    CHECK(memory_now().total - bytes <= 64);  // the old scales may live on with `held`
    CHECK(p.value().data() == held.data());
    size_t i = 0;
    for (const Tensor& t : p.value().attached_layouts()) {
      CHECK(t.data() == places[i++]);
      CHECK(p.value().in_layout(t.layout()).values() == p.value().values());
    }
    CHECK(i == places.size());
  }
}

TEST_CASE("reading a parameter gives a leaf on the current tape, with the parameter's gradient dtype") {
  Parameter p({3, 8}, weight_spec(quant_spec(dtypes::int4, "symmetric"), dtypes::bf16), "w");
  p.initialize("w", 1);
  CHECK_FALSE(p.read().tracked());
  CHECK_FALSE(p.grad_sink().filled());
  CHECK_FALSE(p.grad().defined());
  const Tensor x = random_tensor({2, 8}, dtypes::fp32, 2), gy = random_tensor({2, 3}, dtypes::fp32, 3);
  Tensor once;
  for (const int reads : {1, 2}) {
    Tape tape;
    Var y = linear(Var(x), p.read());
    std::vector<Var> outputs = {y};
    std::vector<Tensor> seeds = {gy};
    if (reads == 2) {
      outputs.push_back(linear(Var(x), p.read()));  // a second leaf on the same sink
      seeds.push_back(gy);
    }
    tape.backward(outputs, seeds);
    CHECK(p.grad().dtype() == dtypes::bf16);
    CHECK(p.grad().kind() == MemoryKind::kGrad);
    CHECK(p.grad_sink().filled());
    if (reads == 1) once = p.grad().clone(MemoryKind::kGrad);
    if (reads == 2)
      for (int64_t i = 0; i < 24; ++i)
        CHECK(p.grad().elements()[static_cast<size_t>(i)] == 2 * once.elements()[static_cast<size_t>(i)]);
    p.grad_sink().clear();
    CHECK_FALSE(p.grad_sink().filled());
  }
}

TEST_CASE("a master with NaN or Inf is an error that names the parameter") {
  for (const DType d : {dtypes::int4, dtypes::bint1, dtypes::ternary, dtypes::uint4, dtypes::nf4}) {
    Parameter p({2, 3}, weight_spec(usual_weight_spec(d)));
    p.initialize("layers.3.weight", 1);
    for (const float bad : {NAN, INFINITY}) {
      p.master().as<float>()[4] = bad;
      CHECK(error_of([&] { p.requantize(1, 17); }) ==
            "[requantize] the master of 'layers.3.weight' ([2,3] fp32) holds NaN or Inf at optimizer step 17");
      CHECK(error_code_of([&] { p.requantize(1, 17); }) == 5);
    }
  }
}

TEST_CASE("a learned step with NaN or Inf is an error that names the part, not the master") {
  for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16}) {
    ParameterSpec spec = weight_spec(quant_spec(dtypes::int4, "lsq"));
    spec.master = master;
    Parameter p({2, 3}, spec);
    p.initialize("layers.3.weight", 1);
    p.learned()[0]->value().as<float>()[0] = INFINITY;
    CHECK(error_of([&] { p.requantize(1, 17); }) ==
          concat("[requantize] learned parts of 'layers.3.weight' at optimizer step 17: [lsq] learned step",
                 runs_on_device() ? ": got NaN or Inf, expected finite values."
                                  : " of block 0: got inf, expected a finite number."));
    CHECK(error_code_of([&] { p.requantize(1, 17); }) == 5);
  }
}

TEST_CASE("a parameter that was not initialized names itself and the call that is missing") {
  const auto text = [](const char* where, const char* what) {
    return concat('[', where, "] parameter 'w' (", what,
                  ") has no values yet: initialize was not called. Call initialize of the model, or of the parameter, "
                  "first.");
  };
  Parameter codes({3, 8}, weight_spec(quant_spec(dtypes::int4, "symmetric")), "w"), floats({4}, {}, "w");
  CHECK(error_of([&] { codes.read(); }) == text("Parameter::read", "[3,8] int4"));
  CHECK(error_of([&] { codes.read(ReadAs::kValues); }) == text("Parameter::read", "[3,8] int4"));
  CHECK(error_of([&] { codes.requantize(0, 1); }) == text("requantize", "[3,8] int4"));
  CHECK(error_of([&] { floats.read(); }) == text("Parameter::read", "[4] fp32"));
  codes.initialize("layers.0.weight", 1);
  floats.initialize("layers.0.bias", 1);
  CHECK_NOTHROW(codes.read());
  CHECK_NOTHROW(codes.requantize(1, 1));
  CHECK_NOTHROW(floats.read());
  // Restored numbers are numbers.
  Parameter twin({3, 8}, weight_spec(quant_spec(dtypes::int4, "symmetric")));
  twin.restore({codes.master(), codes.value()});
  CHECK(twin.read().value().values() == codes.value().values());
}

TEST_CASE("a parameter is requantized with the seed that it was drawn with") {
  Parameter p({2, 3}, weight_spec(quant_spec(dtypes::int4, "symmetric")));
  p.initialize("w", 3);
  CHECK(error_of([&] { p.requantize(4, 1); }) == "[requantize] the seed of 'w': got 4, expected that of initialize, 3");
}

TEST_CASE("restore brings codes and scales back byte for byte, though the master has moved on") {
  Parameter p({5, 70}, weight_spec(quant_spec(dtypes::int3, "affine")));
  p.initialize("w", 8);
  p.memory().add_layout(layouts::planes);
  const Tensor value = p.value().clone(MemoryKind::kValue);
  Tensor master = p.master().clone(MemoryKind::kMaster);
  for (int64_t i = 0; i < master.numel(); ++i) master.as<float>()[i] *= 1.5f;
  Parameter q({5, 70}, weight_spec(quant_spec(dtypes::int3, "affine")));
  q.initialize("w", 9);
  q.memory().add_layout(layouts::planes);
  q.restore({master, value});
  CHECK(q.value().values() == value.values());
  CHECK(q.value().in_layout(layouts::planes).values() == value.values());
  CHECK(q.master().elements() == master.elements());
  CHECK(contains(error_of([&] {
                   q.restore({Tensor::zeros({5, 71}, dtypes::fp32), value});
                 }),
                 "the master of 'w' is [5,70] fp32, got [5,71] fp32"));
  CHECK(error_of([&] {
          q.restore({master, Tensor::zeros({5, 70}, dtypes::int4)});
        }) == "[restore] parameter 'w' is [5,70] int3, got [5,70] int4");
  CHECK(contains(error_of([&] {
                   q.restore({Tensor::zeros({5, 70}, dtypes::fp32), value.without_quant()});
                 }),
                 "have no quantization parameters"));
  CHECK(q.master().elements() == master.elements());
}

TEST_CASE("a spec that cannot be is refused when the parameter is made") {
  CHECK(error_of([] { Parameter({2}, weight_spec(quant_spec(dtypes::int4, "symmetric"), dtypes::int8)); }) ==
        "[Parameter] gradients can be fp32 or bf16, got int8");
  CHECK(contains(error_of([] { Parameter({2}, weight_spec(quant_spec(dtypes::int4, "symetric"))); }), "symmetric"));
  CHECK(contains(error_of([] { Parameter({2}, weight_spec(quant_spec(dtypes::bint1, "symmetric"))); }), "bint1"));
  CHECK(contains(error_of([] { Parameter({2}, weight_spec(quant_spec(dtypes::int1, "absmax"))); }), "step"));
}

TEST_CASE("initial numbers follow their rule") {
  const auto draw = [](const Init& init, const Shape& shape) {
    const Tensor t = Tensor::zeros(shape, dtypes::fp32);
    initialize_part(init, 5, "some.path", shape, 0, t);
    return t.elements();
  };
  const RandomStream draws{5, Purpose::kInit, site_id("some.path"), 0};
  const auto rule = [&](const char* name) { return draw({name, 0, 0}, {10, 14}); };
  const auto uniform = draw({"uniform", -2, 3}, {10, 14}), normal = draw({"normal", 1, 0.5}, {10, 14});
  const auto glorot_u = rule("glorot_uniform"), glorot_n = rule("glorot_normal"), he_u = rule("he_uniform"),
             he_n = rule("he_normal");
  const auto symmetric = [&](double bound, uint64_t e) {
    return static_cast<double>(static_cast<float>(-bound) + static_cast<float>(2 * bound) * draws.uniform(e));
  };
  const auto scaled = [&](double sd, uint64_t e) {
    return static_cast<double>(static_cast<float>(sd) * draws.normal(e));
  };
  for (uint64_t e = 0; e < 140; ++e) {
    CHECK(uniform[e] == static_cast<double>(-2.0f + 5.0f * draws.uniform(e)));
    CHECK(normal[e] == static_cast<double>(1.0f + 0.5f * draws.normal(e)));
    CHECK(glorot_u[e] == symmetric(std::sqrt(6.0 / 24), e));
    CHECK(glorot_n[e] == scaled(std::sqrt(2.0 / 24), e));
    CHECK(he_u[e] == symmetric(std::sqrt(6.0 / 14), e));
    CHECK(he_n[e] == scaled(std::sqrt(2.0 / 14), e));
  }
  CHECK(rule("zeros") == std::vector<double>(140, 0.0));
  CHECK(draw({"constant", 0.25, 0}, {3}) == std::vector<double>(3, 0.25));
  CHECK(contains(error_of([&] {
                   draw({"he_normla", 0, 1}, {3});
                 }),
                 "[init] unknown rule 'he_normla'. Did you mean 'he_normal'? Known: constant, uniform, normal"));
  for (const std::string_view name : init_names()) CHECK_NOTHROW(draw({std::string(name), 0, 0}, {2, 2}));
}

TEST_CASE("fp32 values are made once and follow the codes, whoever writes them") {
  QuantSpec offsets = quant_spec(dtypes::uint4, "minmax_offset"), zeros = quant_spec(dtypes::int8, "affine"),
            groups = quant_spec(dtypes::int4, "symmetric");
  offsets.granularity = Granularity::groups(32);  // ragged: 70 columns
  zeros.granularity = Granularity::channel(0);
  groups.granularity = Granularity::groups(2, 0);
  for (const QuantSpec& spec : {offsets, zeros, groups, quant_spec(dtypes::bint1, "binary")}) {
    Parameter p({6, 70}, weight_spec(spec));
    p.initialize("w", 42);
    INFO(p.value().describe());
    const auto derived = [] { return memory_now().bytes[static_cast<size_t>(MemoryKind::kDerived)]; };
    const int64_t before = derived();
    const Var first = p.read(ReadAs::kValues);
    CHECK(derived() - before >= 6 * 70 * 4);
    const auto follows = [&] {
      const Tensor now = p.read(ReadAs::kValues).value();
      return now.data() == first.value().data() && !now.quant() &&
             bits_of(now) == bits_of(dequantize_tensor(p.value()));
    };
    CHECK(follows());
    for (int64_t i = 0; i < p.master().numel(); ++i) p.master().as<float>()[i] *= -0.7f;
    const auto old = bits_of(first.value());
    p.requantize(42, 1);
    CHECK(follows());
    CHECK(bits_of(first.value()) != old);
    if (scales_are_row_local(p)) {
      for (int64_t i = 0; i < p.master().numel(); ++i) p.master().as<float>()[i] *= 1.5f;
      Requantization codes(p, 42, 2);
      for (const int64_t r : {4, 0, 2}) codes.put_rows(r, p.master().row_slice(r, r + 2));
      codes.finish();
      CHECK(follows());
    }
    Parameter other({6, 70}, weight_spec(spec));
    other.initialize("other", 7);
    p.restore({other.master(), other.value()});
    CHECK(follows());
    p.change([](ParameterSpec& s) { s.scales_frozen = true; });
    for (int64_t i = 0; i < p.master().numel(); ++i) p.master().as<float>()[i] *= -0.3f;
    p.requantize(42, 3);
    CHECK(follows());
    Tape tape;
    CHECK(p.read(ReadAs::kValues).tracked());
  }
}

TEST_CASE("fp32 values follow a weight without a master, and are gone when it is held anew") {
  QuantSpec spec = quant_spec(dtypes::int4, "absmax");
  spec.granularity = Granularity::channel(0);
  ParameterSpec none = weight_spec(spec);
  none.master = MasterKind::kNone;
  none.latent_clamp.reset();
  Parameter p({6, 70}, none);
  p.initialize("w", 42);
  const Tensor values = p.read(ReadAs::kValues).value();
  const Tensor x = Tensor::full({6, 70}, dtypes::fp32, 0.25);
  Requantization codes(p, {42, Purpose::kUpdate, site_id("w"), 1});
  codes.put_rows(0, x.row_slice(0, 4));
  codes.put_rows(4, x.row_slice(4, 6));
  codes.finish();
  CHECK(p.read(ReadAs::kValues).value().data() == values.data());
  CHECK(bits_of(values) == bits_of(dequantize_tensor(p.value())));
  spec.dtype = dtypes::int8;
  const auto set = [&](const std::optional<QuantSpec>& quant, int64_t step) {
    p.change([&](ParameterSpec& s) { s.quant = quant, s.master = MasterKind::kFp32; }, step);
  };
  set(spec, 3);
  CHECK(bits_of(p.read(ReadAs::kValues).value()) == bits_of(dequantize_tensor(p.value())));
  set(std::nullopt, 4);
  CHECK(p.read(ReadAs::kValues).value().data() == p.value().data());
}

// [cpu]: ranks make codes of some rows each on the CPU only
TEST_CASE("parts of the rows give the codes and the scale of a fit to all of them", "[cpu]") {
  struct Scheme {
    const char* name;
    DType dtype;
  };
  for (const auto& [name, dtype] :
       {Scheme{"absmax", dtypes::int4}, Scheme{"symmetric", dtypes::int8}, Scheme{"symmetric_no_clip", dtypes::int3},
        Scheme{"affine", dtypes::int4}, Scheme{"minmax_offset", dtypes::int4}, Scheme{"ternary", dtypes::ternary},
        Scheme{"binary", dtypes::bint1}})
    for (const auto& [rows, cols] : {std::pair{64, 128}, {37, 1024}, {160, 96}, {33, 1}}) {
      INFO(name << ' ' << rows << " x " << cols);
      QuantSpec spec = quant_spec(dtype, name);
      spec.alpha = spec.scheme == "binary";
      Parameter whole(Shape{rows, cols}, weight_spec(spec)), parts(Shape{rows, cols}, weight_spec(spec));
      whole.initialize("w", 5);
      parts.initialize("w", 5);
      const Tensor x = random_tensor({rows, cols}, dtypes::fp32, 9);
      whole.master().copy_from(x);
      parts.master().copy_from(x);
      whole.requantize(5, 3);
      REQUIRE(Requantization::scales_join(parts));
      const int64_t cut = std::min<int64_t>(std::lcm(Requantization::scale_unit(parts), int64_t{16}), rows);
      Requantization codes(parts, 5, 3);
      std::vector<float> terms;
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, cut}, {cut, rows}}) {
        const std::vector<float> of = codes.scale_terms(x.row_slice(begin, end));
        CHECK(std::ssize(of) == Requantization::scale_term_count(parts, begin, end));
        terms.insert(terms.end(), of.begin(), of.end());
      }
      codes.join_scales(terms);
      codes.put_rows(cut, x.row_slice(cut, rows));
      codes.put_rows(0, x.row_slice(0, cut));
      codes.finish();
      CHECK(parts.value().elements() == whole.value().elements());
      if (whole.value().quant()->scale)
        CHECK(parts.value().quant()->scale->elements() == whole.value().quant()->scale->elements());
    }
  Parameter p(Shape{16, 64}, weight_spec(quant_spec(dtypes::ternary, "ternary")));
  p.initialize("layers.0.weight", 5);
  Requantization codes(p, 5, 3);
  Tensor bad = Tensor::zeros({16, 64}, dtypes::fp32);
  bad.as<float>()[70] = INFINITY;
  CHECK(contains(error_of([&] { codes.scale_terms(bad); }), "the master of 'layers.0.weight'"));
  CHECK(contains(error_of([&] { codes.join_scales({3e38f, 3e38f}); }), "the scale of block 0 is inf"));
}
