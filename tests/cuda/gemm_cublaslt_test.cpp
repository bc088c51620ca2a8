// The loader of cuBLASLt and the descriptions that it makes, against a library that only takes notes.
#include "cuda/kernels/gemm/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

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

// The library that takes notes, and its notes.
struct Fake {
  std::string why;
  std::shared_ptr<cuda::gemm::CublasLt> library =
      cuda::gemm::open_cublaslt({"/nowhere/x.so", BITGRAD_FAKE_CUBLASLT}, &why);
  void* handle = dlopen(BITGRAD_FAKE_CUBLASLT, RTLD_NOW);

  const int64_t* notes(const char* name) const { return static_cast<const int64_t*>(dlsym(handle, name)); }
};

TEST_CASE("A product by cuBLASLt is described as the transpose in columns") {
  const DeviceGuard guard(Device::cuda(0));
  const Fake fake;
  INFO(fake.why);
  REQUIRE(fake.library != nullptr);
  const auto& library = fake.library;
  const int64_t* const last = fake.notes("fake_last");
  const auto noted = [&] { return std::vector<int64_t>(last, last + 14); };
  LtProduct p;
  p.m = 5, p.n = 8, p.k = 12, p.lda = 16, p.ldb = 20, p.ldc = 9;
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(noted() == std::vector<int64_t>{0, 12, 8, 20, 0, 12, 5, 16, 0, 8, 5, 9, 2, 68});
  p.a_k_major = p.b_k_major = p.accumulate = true;
  p.lda = 6, p.ldb = 10;
  p.in = p.out = LtType::kBf16;
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(noted() == std::vector<int64_t>{14, 8, 12, 10, 14, 5, 12, 6, 14, 8, 5, 9, 1, 68});
  CHECK(last[15] == 1);
  p = {};
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 4;
  p.in = LtType::kInt8, p.out = LtType::kInt32;
  cuda::gemm::run_cublaslt(*library, p);
  CHECK(noted() == std::vector<int64_t>{3, 4, 4, 4, 3, 4, 4, 4, 10, 4, 4, 4, 2, 72});
}

TEST_CASE("Products of floats take the first algorithm that is not refused; int8 into int32 the fastest, timed once") {
  const DeviceGuard guard(Device::cuda(0));
  const Fake fake;
  REQUIRE(fake.library != nullptr);
  const int64_t *const last = fake.notes("fake_last"), *const runs = fake.notes("fake_runs");
  const auto runs_of = [&](const LtProduct& p) {
    const int64_t before = *runs;
    cuda::gemm::run_cublaslt(*fake.library, p);
    return *runs - before;
  };
  LtProduct p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 8;
  for (const LtType in : {LtType::kFp32, LtType::kBf16})
    for (const bool accumulate : {false, true})
      for (int again = 0; again < 2; ++again) {
        p.in = in;
        p.out = LtType::kFp32;
        p.accumulate = accumulate;
        CHECK(runs_of(p) == 1);
        CHECK(last[14] == 1);
      }
  p.in = LtType::kInt8, p.out = LtType::kInt32;
  CHECK(runs_of(p) == 1);  // C is added to: nothing is timed
  p.accumulate = false;
  CHECK(runs_of(p) == 2 * 4 + 1);  // two algorithms, each once to warm up and three times timed; then the product
  CHECK(last[14] > 0);
  CHECK(runs_of(p) == 1);
}

TEST_CASE("An algorithm is asked for where the operands lie") {
  const DeviceGuard guard(Device::cuda(0));
  const Fake fake;
  REQUIRE(fake.library != nullptr);
  const int64_t* const bytes = fake.notes("fake_alignments");
  const auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  LtProduct p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 8;
  p.a = at(0x1004), p.b = at(0x1008), p.c = at(0x1030);
  cuda::gemm::run_cublaslt(*fake.library, p);
  CHECK(std::vector<int64_t>(bytes, bytes + 4) == std::vector<int64_t>{8, 4, 16, 16});
  p.a = at(0x2000), p.c = at(0x1002);  // another search: the operands lie otherwise
  cuda::gemm::run_cublaslt(*fake.library, p);
  CHECK(std::vector<int64_t>(bytes, bytes + 4) == std::vector<int64_t>{8, 16, 2, 2});
}

}  // namespace
}  // namespace bitgrad
