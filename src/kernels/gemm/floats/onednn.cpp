// gemm_f32_onednn, gemm_bf16_onednn: plain fp32 and bf16 products by oneDNN, one thread per block of C. The summation
// order is oneDNN's own.
// Compiles against oneDNN 2.6 and 3.x.
#include <omp.h>

#include <array>
#include <cstdint>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "kernels/gemm/floats/library_blocks.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::onednn {
namespace {

// oneDNN uses as many threads as OpenMP would. This limits it to one and restores the caller's number at the end of the
// scope.
class OneThread {
 public:
  OneThread() : old_(omp_get_max_threads()) {
    if (old_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (old_ != 1) omp_set_num_threads(old_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int old_;
};

// C[m,n] = A[m,k] * B[k,n] (+ bias[n] in fp32), or C += A * B. Strides in elements; one stride of each pair is 1.
struct MatmulSpec {
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, c_row;
  bool bf16_in, bf16_out, bias, accumulate;

  using Key = std::array<int64_t, 9>;
  Key key() const {
    const int64_t flags = bf16_in | (bf16_out << 1) | (bias << 2) | (accumulate << 3);
    return {m, n, k, a_row, a_column, b_row, b_column, c_row, flags};
  }
};

// Created on first use and never destroyed, so that the order of destruction does not matter.
inline const dnnl::engine& cpu_engine() {
  static const dnnl::engine* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

inline dnnl::matmul::primitive_desc matmul_desc(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                                const dnnl::memory::desc* bias, const dnnl::memory::desc& c,
                                                const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  if (bias != nullptr) return {cpu_engine(), a, b, *bias, c, attr};
  return {cpu_engine(), a, b, c, attr};
#else
  if (bias != nullptr) return {dnnl::matmul::desc(a, b, *bias, c), attr, cpu_engine()};
  return {dnnl::matmul::desc(a, b, c), attr, cpu_engine()};
#endif
}

class Matmul {
 public:
  explicit Matmul(const MatmulSpec& spec)
      : a_desc_({spec.m, spec.k}, type(spec.bf16_in), dnnl::memory::dims{spec.a_row, spec.a_column}),
        b_desc_({spec.k, spec.n}, type(spec.bf16_in), dnnl::memory::dims{spec.b_row, spec.b_column}),
        c_desc_({spec.m, spec.n}, type(spec.bf16_out), dnnl::memory::dims{spec.c_row, 1}),
        bias_desc_({1, spec.n}, type(false), dnnl::memory::dims{spec.n, 1}) {
    dnnl::primitive_attr attr;
    if (spec.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    product_ = dnnl::matmul(matmul_desc(a_desc_, b_desc_, spec.bias ? &bias_desc_ : nullptr, c_desc_, attr));
  }

  void run(const void* a, const void* b, const float* bias, void* c) const {
    static thread_local dnnl::stream stream(cpu_engine());
    std::unordered_map<int, dnnl::memory> operands{
        {DNNL_ARG_SRC, at(a_desc_, a)}, {DNNL_ARG_WEIGHTS, at(b_desc_, b)}, {DNNL_ARG_DST, at(c_desc_, c)}};
    if (bias != nullptr) operands.emplace(DNNL_ARG_BIAS, at(bias_desc_, bias));
    product_.execute(stream, operands);
    stream.wait();
  }

 private:
  static dnnl::memory::data_type type(bool bf16) {
    return bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  }
  static dnnl::memory at(const dnnl::memory::desc& desc, const void* data) {
    return {desc, cpu_engine(), const_cast<void*>(data)};
  }

  dnnl::memory::desc a_desc_, b_desc_, c_desc_, bias_desc_;
  dnnl::matmul product_;
};

// Whether oneDNN, under its own ISA limit, can multiply in bf16 here.
inline bool has_bf16() {
  static const bool can = [] {
    try {
      const OneThread one;
      Matmul({16, 16, 16, 16, 1, 16, 1, 16, true, true, false, false});
      return true;
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory) throw std::bad_alloc();  // not cached: the next caller tries again
      return false;
    }
  }();
  return can;
}

// Runs a product; its primitive is created once per thread and specification.
inline void matmul(const MatmulSpec& spec, const void* a, const void* b, const float* bias, void* c) {
  struct Hash {
    size_t operator()(const MatmulSpec::Key& key) const {
      uint64_t h = 0;
      for (const int64_t word : key) h = (h ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u + (h >> 29);
      return h;
    }
  };
  constexpr size_t kMaxKept = 256;
  static thread_local std::unordered_map<MatmulSpec::Key, Matmul, Hash> made;
  const OneThread one;
  try {
    const MatmulSpec::Key key = spec.key();
    auto it = made.find(key);
    if (it == made.end()) {
      if (made.size() >= kMaxKept) made.clear();
      it = made.emplace(key, Matmul(spec)).first;
    }
    it->second.run(a, b, bias, c);
  } catch (const dnnl::error& error) {
    fail_with(error.status == dnnl_out_of_memory ? ErrorCode::kMemory : ErrorCode::kBug, "gemm",
              "oneDNN failed on a product of m ", spec.m, ", n ", spec.n, ", k ", spec.k, ": ", error.what(), '.');
  }
}

}  // namespace
}  // namespace bitgrad::kernels::onednn

namespace bitgrad::kernels::gemm_impl {
namespace {

using namespace gemm_detail;

// oneDNN adds the bias before its rounding; the old C is added in fp32 afterwards.
bool plain_output(const GemmArgs& args) { return args.k > 0 && !(args.accumulate && args.bias != nullptr); }

void run(const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  const bool bf16_in = args.a.dtype == dtypes::bf16, bf16_out = args.c_dtype == dtypes::bf16;
  const int64_t in_bytes = bf16_in ? 2 : 4, out_bytes = bf16_out ? 2 : 4;
  const int64_t lda = args.a.stride / in_bytes, ldb = args.b.stride / in_bytes;
  for_library_blocks(args, [&](int64_t i0, int64_t rows, int64_t j0, int64_t columns) {
    const onednn::MatmulSpec spec{rows,
                                  columns,
                                  args.k,
                                  args.a.k_major ? 1 : lda,
                                  args.a.k_major ? lda : 1,
                                  args.b.k_major ? ldb : 1,
                                  args.b.k_major ? 1 : ldb,
                                  args.ldc,
                                  bf16_in,
                                  bf16_out,
                                  args.bias != nullptr,
                                  args.accumulate};
    onednn::matmul(spec, free_start(args.a, i0), free_start(args.b, j0),
                   args.bias == nullptr ? nullptr : args.bias + j0,
                   static_cast<char*>(args.c) + (i0 * args.ldc + j0) * out_bytes);
  });
}

// Measured on a Sapphire Rapids core with oneDNN 2.6.3: a fixed cost, the operands, and `rate` multiply-adds per
// nanosecond.
double cost(const GemmArgs& args, double rate) {
  return 1200.0 + 0.12 * static_cast<double>(args.k) * static_cast<double>(args.m + args.n) +
         multiply_adds(args) / rate;
}
// The rate under the current ISA limit.
double by_isa(double avx512, double avx2, double scalar) {
  return (cpu_isa() & isa::kAvx512) != 0 ? avx512 : ((cpu_isa() & isa::kAvx2) != 0 ? avx2 : scalar);
}

}  // namespace

bool gemm_f32_onednn_supports(const GemmArgs& args) {
  return plain_operands(args, dtypes::fp32) && args.c_dtype == dtypes::fp32 && plain_output(args);
}
double gemm_f32_onednn_cost(const GemmArgs& args) { return cost(args, by_isa(85, 42, 15)); }
void gemm_f32_onednn(const GemmArgs& args) { run(args); }

bool gemm_bf16_onednn_supports(const GemmArgs& args) {
  if (!plain_operands(args, dtypes::bf16) || !plain_output(args) || (cpu_isa() & isa::kAvx512) == 0) return false;
  if (args.c_dtype == dtypes::bf16) return !args.accumulate && onednn::has_bf16();
  return args.c_dtype == dtypes::fp32 && onednn::has_bf16();
}
// Without bf16 instructions oneDNN emulates them: 16 multiply-adds per nanosecond with ONEDNN_MAX_CPU_ISA=AVX512_CORE.
double gemm_bf16_onednn_cost(const GemmArgs& args) { return cost(args, (cpu_isa() & isa::kAvx512Bf16) != 0 ? 51 : 16); }
void gemm_bf16_onednn(const GemmArgs& args) { run(args); }

}  // namespace bitgrad::kernels::gemm_impl
