// fp32 tensors that are held as fp16 or bf16 until something reads fp32.
#include "tensor/narrow.h"

#include <bit>
#include <cstring>
#include <numeric>

#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Every bit pattern, NaN and Inf among them, [256, 256].
Tensor all_patterns(DType dtype) {
  Tensor t = Tensor::empty({256, 256}, dtype, MemoryKind::kValue);
  std::iota(t.as<uint16_t>(), t.as<uint16_t>() + t.numel(), uint16_t{0});
  return t;
}

std::vector<uint32_t> bits_of(const Tensor& t) {
  std::vector<uint32_t> bits(static_cast<size_t>(t.numel()));
  std::memcpy(bits.data(), t.data(), bits.size() * 4);
  return bits;
}

}  // namespace

// [cpu]: only weights on the CPU are held in fewer bits.
TEST_CASE("fp32 values that are held as 16-bit floats are equal bit for bit, and count once they are read", "[cpu]") {
  for (const DType dtype : {dtypes::fp16, dtypes::bf16}) {
    INFO(dtype);
    const int64_t before = memory_now()[MemoryKind::kValue], count = 65536;
    const Tensor narrow = all_patterns(dtype), t = detail::widened_on_demand(narrow);
    CHECK(t.dtype() == dtypes::fp32);
    CHECK(t.shape() == narrow.shape());
    CHECK(t.bytes() == 4 * count);
    CHECK_FALSE(t.present());
    CHECK(detail::narrow_of(t).data() == narrow.data());
    CHECK(memory_now()[MemoryKind::kValue] - before == 2 * count);

    std::vector<uint32_t> expected;
    for (uint32_t h = 0; h < count; ++h) {
      const auto half = static_cast<uint16_t>(h);
      expected.push_back(std::bit_cast<uint32_t>(dtype == dtypes::fp16 ? fp16_to_float(half) : bf16_to_float(half)));
    }
    const Tensor rows = t.canonical_rows(3, 9, MemoryKind::kWorkspace);
    CHECK(bits_of(rows) == std::vector<uint32_t>(expected.begin() + 768, expected.begin() + 2304));
    CHECK(contains(error_of([&] { t.canonical_rows(255, 257, MemoryKind::kWorkspace); }), "got rows 255 to 257"));
    CHECK_FALSE(t.present());

    const Tensor copy = t, view = t.reshape({65536});
    CHECK_FALSE(detail::narrow_of(view).defined());
    CHECK(bits_of(t) == expected);
    CHECK(copy.present());
    CHECK(memory_now()[MemoryKind::kValue] - before == 6 * count);
    CHECK_FALSE(detail::narrow_of(copy).defined());  // who read fp32 may have written it
    CHECK(bits_of(view) == expected);
  }
}

TEST_CASE("only dense 16-bit floats on the CPU without scales are widened on demand", "[cpu]") {
  const auto refused = [](const Tensor& t) {
    return contains(error_of([&] { detail::widened_on_demand(t); }), "[widened_on_demand] got");
  };
  CHECK(refused(Tensor::zeros({4, 4}, dtypes::fp32)));
  CHECK(refused(Tensor::zeros({4, 64}, dtypes::int8)));
  CHECK(refused(Tensor::zeros({4, 8}, dtypes::fp16).column_slice(0, 4)));
  CHECK_FALSE(detail::narrow_of(Tensor::zeros({4, 4}, dtypes::fp32)).defined());
  CHECK_FALSE(detail::narrow_of(Tensor()).defined());
}
