// Layout frag64 on the host and on an emulated device.
#include <cstdint>
#include <random>
#include <vector>

#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/pack/frag64.h"
#include "device_array.h"
#include "support/catch.h"

namespace bitgrad::cuda {
namespace {

using test::DeviceArray;

TEST_CASE_METHOD(test::OnDevice, "Codes packed into frag64 on the device are the bytes of the host, and unpack again") {
  std::mt19937 random(11);
  const Layout layout = layouts::frag64;
  for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int3, dtypes::int4, dtypes::uint5, dtypes::int6,
                            dtypes::int7, dtypes::nf4}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {64, 128}, {65, 129}, {130, 77}, {3, 300}}) {
      const int64_t stride = row_bytes_memory(dtype, cols), used = cols * dtype.bits();
      std::vector<uint8_t> canonical(static_cast<size_t>(rows * stride));
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t bit = 0; bit < used; ++bit)
          canonical[static_cast<size_t>(r * stride + bit / 8)] |= static_cast<uint8_t>((random() & 1u) << (bit % 8));
      std::vector<uint8_t> packed(static_cast<size_t>(layout.info().bytes(dtype, rows, cols)), uint8_t{0xEE});
      layout.info().pack(dtype, rows, cols, canonical.data(), stride, packed.data());
      DeviceArray<uint8_t> in(canonical), out(packed.size(), uint8_t{0x77});
      pack_frag64_cuda({dtype, rows, cols, in.data(), stride, layout, out.data()});
      REQUIRE(out.values() == packed);
      std::vector<uint8_t> back(canonical.size(), uint8_t{0x55});
      layout.info().unpack(dtype, rows, cols, packed.data(), back.data(), stride);
      REQUIRE(back == canonical);
    }
  }
}

TEST_CASE("frag64 holds codes of 1 to 7 bits") {
  CHECK(layouts::frag64.info().supports(dtypes::int7));
  CHECK_FALSE(layouts::frag64.info().supports(dtypes::int8));
  CHECK_FALSE(layouts::frag64.info().supports(dtypes::fp32));
  CHECK(layouts::frag64.info().bytes(dtypes::int3, 65, 129) == 4 * 3072);
  CHECK(layouts::frag64.info().bytes(dtypes::int3, 0, 129) == 0);
}

}  // namespace
}  // namespace bitgrad::cuda
