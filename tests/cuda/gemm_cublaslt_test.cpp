// The loader of cuBLASLt and the descriptions that it makes, against a library that only takes notes.
#include "cuda/kernels/gemm/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

#include "bitgrad/base/device.h"
#include "cuda/on_device.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using cuda::gemm::LtProduct;
using cuda::gemm::LtType;

TEST_CASE("cuBLASLt is looked for under its own name alone where one is set, and else under several") {
  ::setenv("BITGRAD_CUBLASLT", "/nowhere/libmine.so", 1);
  CHECK(cuda::gemm::cublaslt_candidates() == std::vector<std::string>{"/nowhere/libmine.so"});
  ::unsetenv("BITGRAD_CUBLASLT");
  const std::vector<std::string> names = cuda::gemm::cublaslt_candidates();
  REQUIRE(names.size() >= 3);
  CHECK(names[0] == "libcublasLt.so.13");
}

TEST_CASE("A library that is absent or lacks a function is passed over with its reason") {
  std::string why;
  CHECK(cuda::gemm::open_cublaslt({"/nowhere/libmine.so", "libc.so.6"}, &why) == nullptr);
  CHECK(why.find("/nowhere/libmine.so") != std::string::npos);
  CHECK(why.find("libc.so.6 has no function cublasLtCreate") != std::string::npos);
}

TEST_CASE("A product by cuBLASLt is described as the transpose in columns, and algorithms are timed once a shape") {
  const DeviceGuard guard(Device::cuda(0));
  std::string why;
  const auto library = cuda::gemm::open_cublaslt({"/nowhere/x.so", BITGRAD_FAKE_CUBLASLT}, &why);
  INFO(why);
  REQUIRE(library != nullptr);
  void* const handle = dlopen(BITGRAD_FAKE_CUBLASLT, RTLD_NOW);
  const auto* last = static_cast<const int64_t*>(dlsym(handle, "fake_last"));
  const auto* runs = static_cast<const int64_t*>(dlsym(handle, "fake_runs"));
  const auto noted = [&] { return std::vector<int64_t>(last, last + 14); };
  LtProduct p;
  p.m = 5, p.n = 8, p.k = 12, p.lda = 16, p.ldb = 20, p.ldc = 9;
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(noted() == std::vector<int64_t>{0, 12, 8, 20, 0, 12, 5, 16, 0, 8, 5, 9, 2, 68});
  CHECK(last[14] > 0);      // not the refused one
  CHECK(*runs == 2 * 4 + 1);  // two algorithms, each once to warm up and three times timed; then the product
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(*runs == 2 * 4 + 2);
  p.a_k_major = p.b_k_major = p.accumulate = true;
  p.lda = 6, p.ldb = 10;
  p.in = p.out = LtType::kBf16;
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(*runs == 2 * 4 + 3);  // C is added to: nothing is timed
  CHECK(noted() == std::vector<int64_t>{14, 8, 12, 10, 14, 5, 12, 6, 14, 8, 5, 9, 1, 68});
  CHECK(last[15] == 1);
  p = {};
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 4;
  p.in = LtType::kInt8, p.out = LtType::kInt32;
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(noted() == std::vector<int64_t>{3, 4, 4, 4, 3, 4, 4, 4, 10, 4, 4, 4, 2, 72});
}

}  // namespace
}  // namespace bitgrad
