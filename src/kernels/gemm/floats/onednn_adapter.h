// The only file that uses oneDNN: plain matrix products on the calling thread. Compiles against 2.6 and 3.x.
#pragma once

#include <omp.h>

#include <array>
#include <cstdint>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "bitgrad/base/error.h"

namespace bitgrad::kernels::onednn {

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

}  // namespace bitgrad::kernels::onednn
