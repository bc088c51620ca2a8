// The loader of cuBLASLt and the descriptions that it makes, against a library that only takes notes.
#include "cuda/kernels/gemm/library/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "cuda/on_device.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

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

TEST_CASE("cuBLASLt is looked for beside the python3 of the PATH and in the toolkit") {
  test::TempDir temp;
  const auto make = [&](const std::string& file) {
    std::filesystem::create_directories(std::filesystem::path(temp.file(file)).parent_path());
    std::ofstream(temp.file(file)) << '.';
    return temp.file(file);
  };
  make("env/bin/python3");
  make("later/bin/python3");
  make("later/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  const std::string wheel = make("env/lib/python3.13/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  const std::string toolkit = make("kit/lib64/libcublasLt.so.12"),
                    target = make("kit/targets/x86_64-linux/lib/libcublasLt.so.13");
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (temp.file("empty/bin") + ":" + temp.file("env/bin") + ":" + temp.file("later/bin")).c_str(), 1);
  ::setenv("CUDA_HOME", temp.file("kit").c_str(), 1);
  const std::vector<std::string> names = cuda::gemm::cublaslt_candidates();
  ::setenv("PATH", path.c_str(), 1);
  ::unsetenv("CUDA_HOME");
  const auto place = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  const auto count = static_cast<std::ptrdiff_t>(names.size());
  CHECK(place(wheel) < place(toolkit));
  CHECK(place(toolkit) < place(target));
  CHECK(place(target) < count);
  CHECK(place(temp.file("later/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13")) == count);
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
      cuda::gemm::open_cublaslt({"/nowhere/x.so", test::build_path("bin/tests/libfake_cublaslt.so")}, &why);
  void* handle = dlopen(test::build_path("bin/tests/libfake_cublaslt.so").c_str(), RTLD_NOW);

  int64_t* notes(const char* name) const { return static_cast<int64_t*>(dlsym(handle, name)); }
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

TEST_CASE("Products of floats use the first algorithm that is not refused; int8 into int32 the fastest, timed once") {
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

TEST_CASE("A shape that cuBLASLt refuses is left to others and not asked for again; other errors are errors") {
  const DeviceGuard guard(Device::cuda(0));
  const Fake fake;
  REQUIRE(fake.library != nullptr);
  int64_t *const status = fake.notes("fake_search_status"), *const found = fake.notes("fake_found");
  const int64_t* const searches = fake.notes("fake_searches");
  LtProduct p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 24;
  const auto runs = [&] { return cuda::gemm::run_cublaslt(*fake.library, p); };
  *found = 1;  // the library's first, which it refuses itself
  CHECK_FALSE(runs());
  const int64_t before = *searches;
  CHECK_FALSE(runs());
  CHECK(*searches == before);
  *found = 3;
  p.m = 25;
  *status = 15;
  CHECK_FALSE(runs());
  p.m = 26;
  *status = 13;
  CHECK(test::contains(test::error_of(runs), "cublasLtMatmulAlgoGetHeuristic: got status 13"));
  *status = 0;
  CHECK(runs());
}

TEST_CASE("An algorithm whose timed runs fail is not the fastest") {
  const DeviceGuard guard(Device::cuda(0));
  const Fake fake;
  REQUIRE(fake.library != nullptr);
  *fake.notes("fake_failing") = 1;
  LtProduct p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 40;
  p.in = LtType::kInt8, p.out = LtType::kInt32;
  CHECK(cuda::gemm::run_cublaslt(*fake.library, p));
  CHECK(fake.notes("fake_last")[14] == 2);
  *fake.notes("fake_failing") = -1;
}

TEST_CASE("An algorithm is selected for the alignment of the operands") {
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
