#include "bench_gemm.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "bitgrad/base/cpu.h"

#include "bench_gemm_eigen.h"
#include "shared/measure.h"
#include "shared/onednn.h"

namespace bitgrad::bench {
namespace {

// OpenBLAS's sgemm, opened at run time if installed (libopenblas.so.0). bitgrad does not need it to build.
// cblas_sgemm: order, transposition of A and of B, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc. Uses one thread.
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
inline constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;  // of the CBLAS standard

// nullptr if OpenBLAS is not installed.
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

// The operands of a library. One buffer of small values serves every format: no denormals, no NaN in any of them.
struct Operands {
  ProductShape s;
  bool a_k_major, b_k_major, add;
  Bytes a, b, c;

  Operands(const Options& options, const ProductShape& shape)
      : s(shape),
        a_k_major(options.a_k_major()),
        b_k_major(options.b_k_major()),
        add(options.accumulate()),
        a(shape.m * shape.k * 4),
        b(shape.n * shape.k * 4),
        c(shape.m * shape.n * 4) {
    for (int64_t i = 0; i < s.m * s.k; ++i) a.floats()[i] = static_cast<float>(i % 17) - 8.0f;
    for (int64_t i = 0; i < s.n * s.k; ++i) b.floats()[i] = static_cast<float>(i % 13) - 6.0f;
  }
};

using Run = std::function<void()>;

#if BITGRAD_WITH_ONEDNN
template <onednn::Number A, onednn::Number B, onednn::Number C>
Run onednn_run(const std::shared_ptr<Operands>& o) {
  onednn::set_threads(1);
  const onednn::Spec spec{o->s.m, o->s.n, o->s.k, A, B, C, o->a_k_major, o->b_k_major, o->add};
  Run run = onednn::product(spec, o->a.data(), o->b.data(), o->c.data(), onednn::Packing::kBefore);
  if (!run) return nullptr;
  return [o, run] { run(); };
}
#endif

Run openblas_run(const std::shared_ptr<Operands>& o) {
  const Sgemm sgemm = find_openblas();
  if (sgemm == nullptr) return nullptr;
  return [o, sgemm] {
    const auto m = static_cast<int>(o->s.m), n = static_cast<int>(o->s.n), k = static_cast<int>(o->s.k);
    sgemm(kRowMajor, o->a_k_major ? kTrans : kNoTrans, o->b_k_major ? kNoTrans : kTrans, m, n, k, 1.0f, o->a.floats(),
          o->a_k_major ? m : k, o->b.floats(), o->b_k_major ? n : k, o->add ? 1.0f : 0.0f, o->c.floats(), n);
  };
}

Run eigen_run(const std::shared_ptr<Operands>& o) {
  const EigenSgemm sgemm = find_eigen();
  if (sgemm == nullptr) return nullptr;
  return [o, sgemm] {
    sgemm({o->s.m, o->s.n, o->s.k, o->a_k_major, o->b_k_major, o->add, o->a.floats(), o->b.floats(), o->c.floats()});
  };
}

struct Maker {
  const char* id;
  const char* text;
  Run (*make)(const std::shared_ptr<Operands>& o);  // returns nothing if the machine cannot run it
};
#if BITGRAD_WITH_ONEDNN
using enum onednn::Number;
#endif
constexpr Maker kMakers[] = {
#if BITGRAD_WITH_ONEDNN
    {"onednn_f32", "oneDNN fp32, prepacked", onednn_run<kF32, kF32, kF32>},
    {"onednn_bf16", "oneDNN bf16, prepacked", onednn_run<kBf16, kBf16, kF32>},
    {"onednn_u8s8", "oneDNN uint8 x int8, prepacked", onednn_run<kU8, kS8, kS32>},
    {"onednn_s8s8", "oneDNN int8 x int8, prepacked", onednn_run<kS8, kS8, kS32>},
#endif
    {"openblas", "OpenBLAS fp32", openblas_run},
    {"eigen", "Eigen fp32", eigen_run},
};

}  // namespace

std::vector<std::string> rival_ids() {
  std::vector<std::string> ids;
  for (const Maker& m : kMakers) ids.push_back(m.id);
  return ids;
}

std::vector<Rival> add_rivals(const Options& options, const ProductShape& shape, std::vector<Contestant>& all) {
  std::vector<Rival> added;
  const auto operands = std::make_shared<Operands>(options, shape);
  for (const Maker& m : kMakers) {
    if (std::find(options.rivals.begin(), options.rivals.end(), m.id) == options.rivals.end()) continue;
    Run run = m.make(operands);
    if (!run) continue;
    added.push_back({m.id, m.text});
    all.push_back({m.text, std::move(run), 1, false, {}});
  }
  return added;
}

EigenSgemm find_eigen() {
  const char* name = (cpu_isa() & isa::kAvx512) != 0 ? "avx512" : ((cpu_isa() & isa::kAvx2) != 0 ? "avx2" : nullptr);
  if (name == nullptr) return nullptr;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  void* library = dlopen((folder / ("libbench_eigen_" + std::string(name) + ".so")).c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<EigenSgemm>(dlsym(library, "bench_eigen_sgemm"));
}

}  // namespace bitgrad::bench
