// Family rowwise on emulated devices: a row beyond the shared memory of a block, bit for bit as on the CPU.
#include "kernels/rowwise.h"

#include "both.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

// A matrix on the current device: numbers whose exp is neither 0 nor Inf, with a few that are.
struct PlacedRows {
  PlacedRows(int64_t n, DType d, uint32_t seed)
      : wide(d == dtypes::bf16 ? std::vector<float>{} : floats(n, seed)),
        narrow(d == dtypes::bf16 ? words(floats(n, seed)) : std::vector<uint16_t>{}),
        dtype(d) {}
  static std::vector<float> floats(int64_t n, uint32_t seed) {
    std::vector<float> x = some_numbers(n, seed);
    for (float& v : x)
      if (std::abs(v) > 1e30f) v = v > 0 ? 30.0f : -90.0f;
    return x;
  }
  static std::vector<uint16_t> words(const std::vector<float>& x) {
    std::vector<uint16_t> out;
    for (const float v : x) out.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    return out;
  }
  void* place() const { return dtype == dtypes::bf16 ? static_cast<void*>(narrow.data()) : wide.data(); }
  FloatsIn in() const { return {place(), dtype}; }
  FloatsOut out() const { return {place(), dtype}; }
  Placed<float> wide;
  Placed<uint16_t> narrow;
  DType dtype;
};

}  // namespace

TEST_CASE("A row of more chunks than fit into shared memory at a time", "[slow]") {
  const int64_t cols = 2048 * 1024 + 1500;
  CHECK(differing_on_device([&](Outcome& out) {
          const PlacedRows x(cols, dtypes::bf16, 1), gx(cols, dtypes::fp32, 2);
          const Placed<int32_t> target(std::vector<int32_t>{7});
          const PlacedRows loss(1, dtypes::fp32, 3), top(1, dtypes::fp32, 4), total(1, dtypes::fp32, 5);
          cross_entropy_rows({1, cols, x.in(), target.data(), -5, loss.out(), top.out(), total.out(), nullptr});
          for (const PlacedRows* p : {&loss, &top, &total}) out.add(p->wide);
        }) == 0);
}

}  // namespace bitgrad::test
