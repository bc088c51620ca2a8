#include "bench_gemm_eigen.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "bitgrad/base/cpu.h"

namespace bitgrad::bench {

EigenSgemm find_eigen() {
  const char* name = (cpu_isa() & isa::kAvx512) != 0 ? "avx512" : ((cpu_isa() & isa::kAvx2) != 0 ? "avx2" : nullptr);
  if (name == nullptr) return nullptr;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  void* library = dlopen((folder / ("libbench_eigen_" + std::string(name) + ".so")).c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<EigenSgemm>(dlsym(library, "bench_eigen_sgemm"));
}

}  // namespace bitgrad::bench
