// Products by matrices of fp16 and bf16 have the bits of products by the same values in fp32.
#include <cstring>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/gemm.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::kernels;

namespace {

struct Case {
  int64_t m, n, k;
};

// Numbers in [-1, 1), without a pattern.
float number(int64_t i) { return static_cast<float>(static_cast<uint64_t>(i) * 2654435761u % 65536) / 32768.0f - 1.0f; }

std::vector<float> product(const Case& c, const std::vector<float>& a, DType dtype, const void* b, int64_t step) {
  std::vector<float> out(static_cast<size_t>(c.m * c.n), 7.0f);
  GemmArgs args;
  args.m = c.m;
  args.n = args.ldc = c.n;
  args.k = c.k;
  args.a.dtype = dtypes::fp32;
  args.a.data = a.data();
  args.a.stride = c.k * 4;
  args.b.dtype = dtype;
  args.b.data = b;
  args.b.stride = c.k * step;
  args.c = out.data();
  args.c_dtype = dtypes::fp32;
  args.row_alone = true;  // one order of sums for all dtypes
  gemm(args);
  return out;
}

}  // namespace

// [cpu]: matrices are in host memory.
TEST_CASE("products by 16-bit floats equal those by the same fp32 values bit for bit, in every ISA", "[cpu]") {
  const IsaLevel old = isa_cap();
  for (const Case& c :
       {Case{1, 33, 2560}, {1, 1, 1}, {1, 16, 4}, {3, 70, 777}, {1, 500, 515}, {20, 31, 6}, {5, 48, 259}})
    for (const DType dtype : {dtypes::fp16, dtypes::bf16}) {
      INFO(c.m << ' ' << c.n << ' ' << c.k << ' ' << dtype);
      std::vector<float> a, wide;
      std::vector<uint16_t> narrow;
      for (int64_t i = 0; i < c.m * c.k; ++i) a.push_back(number(3 * i + 1));
      for (int64_t i = 0; i < c.n * c.k; ++i) {
        const float x = i % 7 == 0 ? number(i) * 1e-6f : number(i);  // some below the normal fp16
        narrow.push_back(dtype == dtypes::fp16 ? fp16_from_float(x) : bf16_from_float(x));
        wide.push_back(dtype == dtypes::fp16 ? fp16_to_float(narrow.back()) : bf16_to_float(narrow.back()));
      }
      for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
        set_isa_cap(level);
        const std::vector<float> got = product(c, a, dtype, narrow.data(), 2),
                                 expected = product(c, a, dtypes::fp32, wide.data(), 4);
        CHECK(std::memcmp(got.data(), expected.data(), got.size() * 4) == 0);
      }
    }
  set_isa_cap(old);
}
