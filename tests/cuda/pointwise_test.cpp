// Family pointwise on emulated devices, bit for bit as on the CPU.
#include "bitgrad/kernels/pointwise.h"

#include "both.h"
#include "support/expect_error.h"
#include "support/pointwise_problem.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

// Elements of `dtype` on the current device.
struct PlacedFloats {
  PlacedFloats(int64_t n, bool bf16, uint32_t seed)
      : wide(bf16 ? std::vector<float>{} : some_numbers(n, seed, true)),
        narrow(bf16 ? some_words<uint16_t>(n, seed) : std::vector<uint16_t>{}),
        dtype(bf16 ? dtypes::bf16 : dtypes::fp32) {}
  void* data() const { return dtype == dtypes::bf16 ? static_cast<void*>(narrow.data()) : wide.data(); }
  void leave(Outcome& out) const {
    out.add(wide);
    std::vector<float> values;
    for (const uint16_t v : narrow.values()) values.push_back(std::bit_cast<float>(uint32_t{v} << 16));
    out.floats.insert(out.floats.end(), values.begin(), values.end());
  }
  Placed<float> wide;
  Placed<uint16_t> narrow;
  DType dtype;
};

void put_steps(const PointwiseProblem::Array& array, int64_t* step) {
  std::copy(array.step.begin(), array.step.end(), step);
}

}  // namespace

TEST_CASE("Functions of two strided arrays on the device have the bits of the CPU") {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const PointwiseProblem p = drawn_problem(seed);
    CAPTURE(seed);
    CHECK(differing_on_device([&](Outcome& out) {
            const PlacedFloats a(p.arrays[0].elements, seed / 4 % 2 == 1, seed);
            const PlacedFloats b(p.arrays[1].elements, seed / 8 % 2 == 1, seed + 1);
            const PlacedFloats y(p.arrays[2].elements, seed / 16 % 2 == 1, seed + 2);
            PointwiseArgs args;
            args.op = static_cast<PointwiseOp>(seed % static_cast<uint32_t>(PointwiseOp::kCount));
            std::copy(p.size.begin(), p.size.end(), args.size);
            args.a = {a.data(), a.dtype, {}};
            args.b = {b.data(), b.dtype, {}};
            args.y = {y.data(), y.dtype, {}};
            put_steps(p.arrays[0], args.a.step);
            put_steps(p.arrays[1], args.b.step);
            put_steps(p.arrays[2], args.y.step);
            pointwise(args);
            y.leave(out);
          }) == 0);
  }
}

TEST_CASE("Strided copies on the device, of every size of element and between fp32 and bf16") {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const PointwiseProblem p = drawn_problem(seed);
    CAPTURE(seed);
    CHECK(differing_on_device([&](Outcome& out) {
            StridedCopyArgs args;
            std::copy(p.size.begin(), p.size.end(), args.size);
            put_steps(p.arrays[0], args.x.step);
            put_steps(p.arrays[2], args.y.step);
            if (seed % 6 >= 4) {
              const bool narrow = seed % 2 == 0;
              const PlacedFloats x(p.arrays[0].elements, !narrow, seed), y(p.arrays[2].elements, narrow, seed + 1);
              args.x.data = x.data();
              args.x.dtype = x.dtype;
              args.y.data = y.data();
              args.y.dtype = y.dtype;
              strided_copy(args);
              return y.leave(out);
            }
            const DType dtype = std::array{dtypes::int8, dtypes::bf16, dtypes::int32, dtypes::int64}[seed % 6];
            const int64_t bytes = dtype.bits() / 8;
            const Placed<uint64_t> x(some_words<uint64_t>(p.arrays[0].elements * bytes / 8 + 1, seed));
            const Placed<uint64_t> y(some_words<uint64_t>(p.arrays[2].elements * bytes / 8 + 1, seed + 1));
            args.x.data = x.data();
            args.y.data = y.data();
            args.x.dtype = args.y.dtype = dtype;
            strided_copy(args);
            out.add(y);
          }) == 0);
  }
}

TEST_CASE("Doubles are refused on the device by name") {
  const DeviceGuard guard(Device::cuda());
  PointwiseArgs args;
  args.a.dtype = args.b.dtype = args.y.dtype = dtypes::fp64;
  CHECK(contains(error_of([&] { pointwise(args); }), "[pointwise] fp64 is the reference dtype of the CPU"));
}

}  // namespace bitgrad::test
