// The part of the C interface of cuBLASLt (cublasLt.h of CUDA 12 and 13) that is used here. Opaque handles and
// ABI-stable enum values are declared in this file, so that no library header is needed.
//
// The library's matrices are column-major, so it computes C^T [n, m] = B A^T: its first operand is our B, its second
// our A.
#include "cuda/kernels/gemm/library/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "cuda/runtime/library_files.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::gemm {

// Not in the unnamed namespace, because CublasLt has members of these types.
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
using LtShape = std::array<int64_t, 14>;  // everything an algorithm depends on

namespace {

constexpr int kFp32 = 0, kInt8 = 3, kInt32 = 10, kBf16 = 14;  // cudaDataType
constexpr int kComputeFp32 = 68, kComputeInt32 = 72;          // cublasComputeType_t
constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8,
              kBiasType = 26;     // cublasLtMatmulDescAttributes_t
constexpr int kEpilogueBias = 4;  // cublasLtEpilogue_t
// cublasLtMatmulPreferenceAttributes_t
constexpr int kMaxWorkspace = 1, kMinAlignmentA = 5, kMinAlignmentB = 6, kMinAlignmentC = 7, kMinAlignmentD = 8;
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
constexpr int kAlgorithms = 8, kTimedRuns = 3;
constexpr int kNotSupported = 15;  // cublasStatus_t

int type_of(LtType type) {
  switch (type) {
    case LtType::kFp32:
      return kFp32;
    case LtType::kBf16:
      return kBf16;
    case LtType::kInt8:
      return kInt8;
    case LtType::kInt32:
      break;
  }
  return kInt32;
}

// The largest power of two up to 16 that divides an address. Higher alignment varies from run to run, and the chosen
// algorithm would vary with it.
uint32_t alignment_of(const void* x) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(x) | 16;
  return static_cast<uint32_t>(address & (~address + 1));
}

LtShape shape_of(const LtProduct& p) {
  return {current_device_index(),
          p.m,
          p.n,
          p.k,
          p.lda,
          p.ldb,
          p.ldc,
          p.a_k_major * 2 + p.b_k_major,
          static_cast<int64_t>(p.in),
          static_cast<int64_t>(p.out),
          p.accumulate * 2 + (p.bias != nullptr),
          alignment_of(p.a),
          alignment_of(p.b),
          alignment_of(p.c)};
}

}  // namespace

#define BITGRAD_CUBLASLT_FUNCTIONS(X)                                                                            \
  X(Create, (void**))                                                                                            \
  X(MatmulDescCreate, (void**, int, int))                                                                        \
  X(MatmulDescDestroy, (void*))                                                                                  \
  X(MatmulDescSetAttribute, (void*, int, const void*, size_t))                                                   \
  X(MatrixLayoutCreate, (void**, int, uint64_t, uint64_t, int64_t))                                              \
  X(MatrixLayoutDestroy, (void*))                                                                                \
  X(MatmulPreferenceCreate, (void**))                                                                            \
  X(MatmulPreferenceDestroy, (void*))                                                                            \
  X(MatmulPreferenceSetAttribute, (void*, int, const void*, size_t))                                             \
  X(MatmulAlgoGetHeuristic, (void*, void*, void*, void*, void*, void*, void*, int, void*, int*))                 \
  X(Matmul, (void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, \
             void*, void*, const void*, void*, size_t, void*))

struct CublasLt {
#define BITGRAD_MEMBER(name, parameters) int(*name) parameters = nullptr;
  BITGRAD_CUBLASLT_FUNCTIONS(BITGRAD_MEMBER)
#undef BITGRAD_MEMBER
  std::string path;
  std::mutex mutex;
  std::map<int, void*> handles;  // by device
  std::map<LtShape, LtHeuristic> chosen;
  std::set<LtShape> refused;  // shapes without an algorithm
};

namespace {

void check(int status, const char* call) {
  if (status != 0)
    fail_with(ErrorCode::kDevice, "cuBLASLt", call, ": got status ", status,
              ", expected 0. Hint: set BITGRAD_CUBLASLT to another library, or to a name that does not exist to run "
              "without it.");
}

// A cuBLASLt descriptor, destroyed at the end of its scope.
struct Descriptor {
  void* handle = nullptr;
  int (*destroy)(void*);
  explicit Descriptor(int (*end)(void*)) : destroy(end) {}
  ~Descriptor() {
    if (handle != nullptr) destroy(handle);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

// A product with its descriptors.
class Call {
 public:
  Call(CublasLt& library, const LtProduct& p)
      : library_(library),
        p_(p),
        matmul_(library.MatmulDescDestroy),
        first_(library.MatrixLayoutDestroy),
        second_(library.MatrixLayoutDestroy),
        c_(library.MatrixLayoutDestroy),
        preference_(library.MatmulPreferenceDestroy) {
    const bool integers = p.in == LtType::kInt8;
    check(library.MatmulDescCreate(&matmul_.handle, integers ? kComputeInt32 : kComputeFp32, integers ? kInt32 : kFp32),
          "cublasLtMatmulDescCreate");
    set(kTransposeA, p.b_k_major ? 0 : 1);
    set(kTransposeB, p.a_k_major ? 1 : 0);
    if (p.bias != nullptr) {
      set(kEpilogue, kEpilogueBias);
      set(kBiasType, kFp32);
      check(library.MatmulDescSetAttribute(matmul_.handle, kBiasPointer, &p_.bias, sizeof(p_.bias)), "bias");
    }
    const auto layout = [&](Descriptor& d, LtType type, int64_t rows, int64_t columns, int64_t ld) {
      check(library.MatrixLayoutCreate(&d.handle, type_of(type), static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(columns), ld),
            "cublasLtMatrixLayoutCreate");
    };
    layout(first_, p.in, p.b_k_major ? p.n : p.k, p.b_k_major ? p.k : p.n, p.ldb);
    layout(second_, p.in, p.a_k_major ? p.m : p.k, p.a_k_major ? p.k : p.m, p.lda);
    layout(c_, p.out, p.n, p.m, p.ldc);
    check(library.MatmulPreferenceCreate(&preference_.handle), "cublasLtMatmulPreferenceCreate");
    const auto bytes = static_cast<uint64_t>(kWorkspaceBytes);
    check(library.MatmulPreferenceSetAttribute(preference_.handle, kMaxWorkspace, &bytes, sizeof(bytes)), "workspace");
    const auto align = [&](int attribute, const void* x) {
      const uint32_t min = alignment_of(x);
      check(library.MatmulPreferenceSetAttribute(preference_.handle, attribute, &min, sizeof(min)), "alignment");
    };
    align(kMinAlignmentA, p.b);
    align(kMinAlignmentB, p.a);
    align(kMinAlignmentC, p.c);
    align(kMinAlignmentD, p.c);
  }

  // Algorithms, best first by the library's own estimate. Empty if it has none for the shape.
  std::vector<LtHeuristic> heuristics(void* handle) {
    std::vector<LtHeuristic> all(kAlgorithms);
    int count = 0;
    const int status = library_.MatmulAlgoGetHeuristic(handle, matmul_.handle, first_.handle, second_.handle, c_.handle,
                                                       c_.handle, preference_.handle, kAlgorithms, all.data(), &count);
    if (status == kNotSupported) return {};
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    all.resize(static_cast<size_t>(count));
    std::erase_if(all, [](const LtHeuristic& h) { return h.state != 0; });
    return all;
  }

  int run(void* handle, const LtHeuristic& h, void* workspace) {
    const float one = 1, add = p_.accumulate ? 1 : 0;
    const int32_t int_one = 1, int_add = p_.accumulate ? 1 : 0;
    const bool integers = p_.in == LtType::kInt8;
    const void* alpha = integers ? static_cast<const void*>(&int_one) : &one;
    const void* beta = integers ? static_cast<const void*>(&int_add) : &add;
    return library_.Matmul(handle, matmul_.handle, alpha, p_.b, first_.handle, p_.a, second_.handle, beta, p_.c,
                           c_.handle, p_.c, c_.handle, &h.algorithm, workspace, h.workspace_bytes,
                           native_stream(current_stream()));
  }

 private:
  void set(int attribute, int32_t value) {
    check(library_.MatmulDescSetAttribute(matmul_.handle, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  CublasLt& library_;
  LtProduct p_;
  Descriptor matmul_, first_, second_, c_, preference_;
};

// The fastest algorithm that runs.
LtHeuristic fastest(Call& call, void* handle, const std::vector<LtHeuristic>& all, void* workspace) {
  const Event begin = event_create(true), end = event_create(true);
  LtHeuristic best = all.front();
  double best_ms = -1;
  for (const LtHeuristic& h : all) {
    if (call.run(handle, h, workspace) != 0) continue;  // warm-up
    event_record(begin, current_stream());
    bool ran = true;
    for (int i = 0; i < kTimedRuns; ++i) ran = call.run(handle, h, workspace) == 0 && ran;
    event_record(end, current_stream());
    event_synchronize(end);
    if (!ran) continue;
    const double ms = elapsed_ms(begin, end);
    if (best_ms >= 0 && ms >= best_ms) continue;
    best = h;
    best_ms = ms;
  }
  event_destroy(begin);
  event_destroy(end);
  return best;
}

void* load(const std::string& name, CublasLt& library, std::string& why) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why += concat(why.empty() ? "" : "; ", dlerror());
    return nullptr;
  }
  const char* missing = nullptr;
#define BITGRAD_LOAD(function, parameters)                                                     \
  library.function = reinterpret_cast<int(*) parameters>(dlsym(handle, "cublasLt" #function)); \
  if (library.function == nullptr && missing == nullptr) missing = "cublasLt" #function;
  BITGRAD_CUBLASLT_FUNCTIONS(BITGRAD_LOAD)
#undef BITGRAD_LOAD
  if (missing == nullptr) return handle;
  why += concat(why.empty() ? "" : "; ", name, " has no function ", missing);
  dlclose(handle);
  return nullptr;
}

struct Found {
  std::shared_ptr<CublasLt> library;
  std::string why;
  Found() { library = open_cublaslt(cublaslt_candidates(), &why); }
};
// Never destroyed: the library may already be unloaded at exit.
Found& found() {
  static auto* const once = new Found;
  return *once;
}

}  // namespace

std::vector<std::string> cublaslt_candidates() {
  return library_candidates(
      {.variable = "BITGRAD_CUBLASLT",
       .names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
       .in_wheels = {"nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12"}});
}

std::shared_ptr<CublasLt> open_cublaslt(const std::vector<std::string>& candidates, std::string* why) {
  std::string reasons;
  for (const std::string& name : candidates) {
    auto library = std::make_shared<CublasLt>();
    library->path = name;
    if (load(name, *library, reasons) != nullptr) return library;
  }
  if (why != nullptr) *why = reasons;
  return nullptr;
}

CublasLt* cublaslt() { return found().library.get(); }

std::string describe_cublaslt() {
  const Found& once = found();
  return once.library != nullptr ? "cuBLASLt: " + once.library->path : "cuBLASLt was not found: " + once.why;
}

bool run_cublaslt(CublasLt& library, const LtProduct& product) {
  const std::lock_guard lock(library.mutex);
  void*& handle = library.handles[current_device_index()];
  native_stream(current_stream());  // makes the device CUDA's current one, which a new handle belongs to
  if (handle == nullptr) check(library.Create(&handle), "cublasLtCreate");
  const LtShape shape = shape_of(product);
  if (library.refused.count(shape) > 0) return false;
  Call call(library, product);
  const Workspace workspace(kWorkspaceBytes);
  auto at = library.chosen.find(shape);
  if (at == library.chosen.end()) {
    const std::vector<LtHeuristic> all = call.heuristics(handle);
    if (all.empty()) {
      library.refused.insert(shape);
      return false;
    }
    // Float algorithms may differ in bits, and timings vary from process to process, so only exact products are timed.
    const bool exact = product.in == LtType::kInt8 && product.out == LtType::kInt32;
    const bool can_time = exact && !product.accumulate && !capturing(current_stream());
    const LtHeuristic best = can_time ? fastest(call, handle, all, workspace.as<void>()) : all.front();
    if (!capturing(current_stream())) library.chosen.emplace(shape, best);
    check(call.run(handle, best, workspace.as<void>()), "cublasLtMatmul");
    return true;
  }
  check(call.run(handle, at->second, workspace.as<void>()), "cublasLtMatmul");
  return true;
}

}  // namespace bitgrad::cuda::gemm
