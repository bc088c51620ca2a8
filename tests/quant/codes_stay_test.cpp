// Codes of weights that nothing updates.
#include <random>

#include "bitgrad/quant/quantizer.h"
#include "support/catch.h"
#include "support/device_run.h"

using namespace bitgrad;

TEST_CASE("the values of codes become the same codes for any draws, for each scheme that trains without a master") {
  std::mt19937 random(3);
  const uint32_t steps = test::runs_on_device() ? 20 : 300;  // emulated: its codes are those of the CPU, draw by draw
  for (const std::string scheme : {"absmax", "symmetric_no_clip", "affine", "minmax_offset", "fixed"})
    for (const DType dtype : {dtypes::int8, dtypes::uint8, dtypes::int7, dtypes::int4, dtypes::uint4, dtypes::int2}) {
      const bool magnitudes = scheme == "absmax" && dtype.kind() == DTypeKind::kUint;
      if (scheme == "symmetric_no_clip" && dtype.kind() == DTypeKind::kUint) continue;
      QuantSpec spec;
      spec.dtype = dtype;
      spec.scheme = scheme;
      if (scheme == "fixed")
        spec.scale = 0.00731f;
      else
        spec.granularity = Granularity::channel(0);
      std::vector<double> x(300 * 64);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] =
            std::uniform_real_distribution<double>(magnitudes ? 0 : -1, 1)(random) * (1 + static_cast<double>(i / 64));
      Tensor codes = quantize_dynamic(spec, Tensor::from_elements({300, 64}, dtypes::fp32, x));
      const std::vector<double> first = codes.elements();
      spec.rounding = Rounding::kStochastic;
      for (uint32_t step = 0; step < steps; ++step) {
        const RandomStream draws{1, Purpose::kUpdate, 7, step};
        codes = quantize_dynamic(spec, dequantize_tensor(codes), {.sr = &draws});
      }
      const std::vector<double> last = codes.elements();
      int moved = 0;
      for (size_t i = 0; i < first.size(); ++i) moved += first[i] != last[i];
      INFO(scheme << " " << dtype.name());
      CHECK(moved == 0);
    }
}
