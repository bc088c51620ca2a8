// Family pack on a device: layouts that it lacks, and strides of a transposition.
#include "kernels/pack.h"
#include "bitgrad/dtype/codec.h"
#include "cuda/both.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::Placed;

// pack of random bytes on the current device.
void run_pack(DType dtype, int64_t rows, int64_t cols, Layout to) {
  const int64_t stride = row_bytes_memory(dtype, cols);
  const Placed<uint8_t> in(test::some_words<uint8_t>(rows * stride, 1));
  const Placed<uint8_t> made(std::vector<uint8_t>(static_cast<size_t>(to.info().bytes(dtype, rows, cols)), 0xA5));
  PackArgs args;
  args.dtype = dtype;
  args.rows = rows;
  args.cols = cols;
  args.canonical = in.data();
  args.stride = stride;
  args.to = to;
  args.out = made.data();
  pack(args);
}

}  // namespace

TEST_CASE("Layouts that only products of the CPU read are an error on CUDA") {
  const DeviceGuard guard(Device::cuda());
  for (const Layout to : {layouts::panels16, layouts::vnni64, layouts::vnni64_t, layouts::tiles16}) {
    const DType dtype = to.info().supports(dtypes::int4) ? dtypes::int4 : dtypes::bint1;
    const std::string error = test::error_of([&] { run_pack(dtype, 8, 64, to); });
    CHECK(test::contains(error, "[pack] no kernel on cuda:0 from canonical " + dtype.name() + " codes to layout"));
    CHECK(test::contains(error, "Use layout canonical."));
  }
}

TEST_CASE("The transposition that tensors ask for keeps a wider stride of the result") {
  std::mt19937 random(2);
  const DeviceGuard guard(Device::cuda());
  for (const DType dtype : {dtypes::bint1, dtypes::int3, dtypes::int8, dtypes::bf16, dtypes::fp32, dtypes::int64})
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{5, 130}, {129, 3}, {64, 64}}) {
      const int64_t stride = row_bytes_memory(dtype, cols), used = row_bytes_memory(dtype, rows), wide = used + 16;
      const std::vector<uint8_t> codes = test::some_words<uint8_t>(rows * stride, static_cast<uint32_t>(random()));
      const Placed<uint8_t> in(codes), out(std::vector<uint8_t>(static_cast<size_t>(cols * wide), 0xA5));
      transpose_on_device({dtype.bits(), rows, cols, in.data(), stride, out.data(), wide});
      std::vector<uint8_t> expected(static_cast<size_t>(layouts::transposed.info().bytes(dtype, rows, cols)));
      layouts::transposed.info().pack(dtype, rows, cols, codes.data(), stride, expected.data());
      const std::vector<uint8_t> made = out.values();
      int64_t wrong = 0;
      for (int64_t c = 0; c < cols; ++c)
        for (int64_t b = 0; b < wide; ++b)
          wrong += made[static_cast<size_t>(c * wide + b)] !=
                   (b < used ? expected[static_cast<size_t>(c * used + b)] : 0xA5);
      CHECK(wrong == 0);
    }
}

}  // namespace bitgrad
