// Parameters that are restored on another device than the one that held them.
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

}  // namespace

TEST_CASE("A parameter is restored from tensors of the CPU on a device, and the other way round") {
  const StrictBits strict;
  for (const Held& form : kForms) {
    INFO(form.name);
    Parameter from({11, 32}, spec_of(form));
    from.initialize("w", 2);
    const DeviceGuard guard(gpu());
    Parameter to({11, 32}, spec_of(form));
    to.initialize("w", 9);
    to.restore({from.has_master() ? from.master() : Tensor(), from.value()});
    poll_errors();
    CHECK(to.value().device() == gpu());
    CHECK(difference(from.value(), to.value()) == "");
    if (from.has_master()) CHECK(difference(from.master(), to.master()) == "");
    const DeviceGuard cpu(Device::cpu());
    Parameter back({11, 32}, spec_of(form));
    back.initialize("w", 8);
    back.restore({to.has_master() ? to.master() : Tensor(), to.value()});
    CHECK(difference(from.value(), back.value()) == "");
  }
}
