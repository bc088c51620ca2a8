// Parameters on the (emulated) device: masters, codes, scales and layouts have the bits of the CPU.
#include "bitgrad/nn/parameter.h"

#include "cuda/same_as_cpu.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct Held {
  const char* name;
  DType dtype;
  const char* scheme;
  Granularity granularity;
  Rounding rounding = Rounding::kNearest;
  MasterKind master = MasterKind::kFp32;
};

const std::vector<Held> kForms = {
    {"signs", dtypes::bint1, "binary", Granularity::tensor()},
    {"int8 by rows", dtypes::int8, "absmax", Granularity::channel(0)},
    {"int4 in groups, stochastic", dtypes::int4, "symmetric", Granularity::groups(16), Rounding::kStochastic},
    {"int8 of the whole, bf16 master", dtypes::int8, "affine", Granularity::tensor(), Rounding::kNearest,
     MasterKind::kBf16},
    {"int4 by rows, bf16 master", dtypes::int4, "absmax", Granularity::channel(0), Rounding::kStochastic,
     MasterKind::kBf16},
    {"int8 without master", dtypes::int8, "absmax", Granularity::channel(0), Rounding::kStochastic, MasterKind::kNone},
    {"ternary", dtypes::ternary, "ternary", Granularity::tensor()},
    {"learned steps", dtypes::int4, "lsq", Granularity::channel(0)},
};

ParameterSpec spec_of(const Held& form) {
  ParameterSpec spec;
  spec.init = {"uniform", -1, 1};
  spec.quant.emplace();
  spec.quant->dtype = form.dtype;
  spec.quant->scheme = form.scheme;
  spec.quant->granularity = form.granularity;
  spec.quant->rounding = form.rounding;
  spec.master = form.master;
  return spec;
}

Results all_of(const Parameter& p) {
  Results out{p.value().clone(MemoryKind::kWorkspace)};
  if (p.has_master()) out.push_back(p.master().clone(MemoryKind::kWorkspace));
  for (const auto& part : p.learned()) out.push_back(part->value().clone(MemoryKind::kWorkspace));
  return out;
}

void append(Results& to, const Results& more) { to.insert(to.end(), more.begin(), more.end()); }

}  // namespace

TEST_CASE("Parameters of every form are made, requantized and given new numbers on a device as on the CPU") {
  for (const Held& form : kForms) {
    INFO(form.name);
    CHECK(device_difference([&] {
            Parameter p({13, 48}, spec_of(form));
            p.initialize("layers.0.weight", 3);
            Results out = all_of(p);
            p.assign(here(random_tensor({13, 48}, dtypes::fp32, 7, -2, 2)), 1);
            append(out, all_of(p));
            p.requantize(3, 2);
            append(out, all_of(p));
            out.push_back(p.dequantized().clone(MemoryKind::kWorkspace));
            p.freeze_scales(true);
            p.requantize(3, 3);
            append(out, all_of(p));
            return out;
          }) == "");
  }
}

TEST_CASE("A parameter changes its form on a device as on the CPU") {
  CHECK(device_difference([] {
          ParameterSpec spec;
          spec.init = {"normal", 0, 1};
          Parameter p({9, 32}, spec);
          p.initialize("w", 5);
          Results out = all_of(p);
          for (const Held& form : kForms) {
            p.set_quant(spec_of(form).quant, form.master, 4);
            append(out, all_of(p));
          }
          p.set_quant(std::nullopt, MasterKind::kFp32, 5);
          append(out, all_of(p));
          p.set_quant(spec_of(kForms[1]).quant, MasterKind::kFp32, 6);
          p.convert();
          append(out, all_of(p));
          return out;
        }) == "");
}

TEST_CASE("Layouts of a parameter on a device follow its codes, and dequantized values too") {
  CHECK(
      device_difference([] {
        Parameter p({20, 70}, spec_of(kForms[1]));
        p.initialize("w", 5);
        p.add_layout(layouts::transposed);
        const Tensor values = p.read_values().value();
        p.assign(here(random_tensor({20, 70}, dtypes::fp32, 8, -3, 3)), 1);
        return Results{p.value().without_quant().in_layout(layouts::transposed), values.clone(MemoryKind::kWorkspace)};
      }) == "");
}

TEST_CASE("A parameter is restored from tensors of the CPU on a device, and the other way round") {
  const StrictBits strict;
  for (const Held& form : kForms) {
    INFO(form.name);
    Parameter from({11, 32}, spec_of(form));
    from.initialize("w", 2);
    const DeviceGuard guard(gpu());
    Parameter to({11, 32}, spec_of(form));
    to.initialize("w", 9);
    to.restore(from.has_master() ? from.master() : Tensor(), from.value());
    poll_errors();
    CHECK(to.value().device() == gpu());
    CHECK(difference(from.value(), to.value()) == "");
    if (from.has_master()) CHECK(difference(from.master(), to.master()) == "");
    const DeviceGuard cpu(Device::cpu());
    Parameter back({11, 32}, spec_of(form));
    back.initialize("w", 8);
    back.restore(to.has_master() ? to.master() : Tensor(), to.value());
    CHECK(difference(from.value(), back.value()) == "");
  }
}

TEST_CASE("A master that is not finite is an error with the CPU's text, when the flags of the device are read") {
  for (const Held& form : kForms) {
    if (form.master == MasterKind::kNone) continue;
    INFO(form.name);
    const TwoErrors e = errors_of([&] {
      Parameter p({3, 32}, spec_of(form));
      p.initialize("layers.0.weight", 3);
      Tensor x = Tensor::full(Shape{3, 32}, form.master == MasterKind::kBf16 ? dtypes::bf16 : dtypes::fp32, INFINITY);
      p.master().copy_from(x);
      p.requantize(3, 17);
    });
    CHECK(e.on_cpu != "");
    CHECK(e.on_gpu == e.on_cpu);
  }
}
