// Observers on a device keep the state of the CPU and give its scales; a bad batch changes nothing.
#include <cmath>

#include "bitgrad/quant/observer.h"
#include "cuda/same_as_cpu.h"
#include "quant/observer_support.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// State and params after batches of growing size.
Results watch(const std::string& name, const QuantSpec& spec, const std::vector<Tensor>& batches) {
  const std::unique_ptr<Observer> observer = observer_named(name, spec, batches[0].cols());
  CHECK(!observer->ready());
  Results out;
  for (const Tensor& x : batches) {
    observer->observe(here(x));
    CHECK(observer->ready());
    const QuantParams p = observer->params(spec);
    out.push_back(*p.scale);
    out.push_back(p.zero ? *p.zero : Tensor());
    for (const Observer::State& s : observer->state()) out.push_back(s.tensor.clone(MemoryKind::kWorkspace));
  }
  return out;
}

TEST_CASE("observers follow batches as on the CPU") {
  std::vector<Tensor> batches;
  for (const double scale : {0.01, 1.0, 0.3, 900.0}) batches.push_back(host_numbers({7, 66}, 3, scale));
  for (const char* scheme : {"affine", "symmetric", "absmax"})
    for (const char* name : {"min_max", "moving_average", "percentile", "mse"}) {
      INFO(scheme << ' ' << name);
      CHECK(device_difference([&] { return watch(name, spec_of(scheme), batches); }) == "");
      CHECK(device_difference([&] { return watch(name, spec_of(scheme, dtypes::int4), {batches[1]}); }) == "");
    }
  for (const char* name : {"min_max", "moving_average"})
    CHECK(device_difference(
              [&] { return watch(name, spec_of("affine", dtypes::uint8, Granularity::channel(1)), batches); }) == "");
}

TEST_CASE("a batch with NaN changes no observer, and is an error when the flags are read") {
  Tensor bad = host_numbers({3, 5}, 1);
  bad.as<float>()[7] = std::nanf("");
  for (const char* name : {"min_max", "moving_average", "percentile", "mse"}) {
    INFO(name);
    const QuantSpec spec = spec_of("affine");
    const std::string on_cpu = error_of([&] { observer_named(name, spec, 5)->observe(bad); });
    const DeviceGuard guard(gpu());
    const auto observer = observer_named(name, spec, 5);
    observer->observe(here(host_numbers({3, 5}, 2)));
    const auto before = whole_state(*observer);
    observer->observe(here(bad));
    CHECK(error_of([] { poll_errors(); }) == on_cpu);
    CHECK(contains(on_cpu, "holds NaN or Inf"));
    CHECK(whole_state(*observer) == before);
  }
}

}  // namespace
