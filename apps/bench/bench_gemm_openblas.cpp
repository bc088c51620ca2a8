#include "bench_gemm_openblas.h"

#include <dlfcn.h>

#include <cstdlib>

#include "bitgrad/base/cpu.h"

namespace bitgrad::bench {

Sgemm find_openblas() {
  static const Sgemm found = []() -> Sgemm {
    // Versions older than the CPU assume that it lacks AVX-512. The library reads this variable when it is opened.
    if ((cpu_isa() & isa::kAvx512) != 0) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    if (void* threads = dlsym(library, "openblas_set_num_threads")) reinterpret_cast<void (*)(int)>(threads)(1);
    return reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  }();
  return found;
}

}  // namespace bitgrad::bench
