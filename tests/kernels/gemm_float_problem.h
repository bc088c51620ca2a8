// Random float products with every dtype, order of storage and granularity, and their sums by plain loops that share no
// code with the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "kernels/panel_scales.h"
#include "support/gemm_int_problem.h"

namespace bitgrad::test {

// A stored matrix whose rows have gaps, with its parameters.
struct StoredMatrix {
  int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = dtypes::fp32;
  std::vector<uint8_t> bytes;
  std::vector<float> scale, offset;
  std::vector<int32_t> zero;
  ScaleMap map;

  StoredMatrix(DType type, int64_t r, int64_t c, std::mt19937& rng) : rows(r), cols(c), dtype(type) {
    stride = row_bytes_memory(dtype, cols) + 8 * static_cast<int64_t>(rng() % 3);
    bytes.assign(static_cast<size_t>(std::max<int64_t>(1, rows * stride)), 0xA5);
    const DTypeInfo& info = dtype.info();
    std::normal_distribution<double> normal;
    std::vector<double> numbers(static_cast<size_t>(cols));
    std::vector<uint8_t> raw(static_cast<size_t>(cols));
    for (int64_t i = 0; i < rows; ++i) {
      void* row = bytes.data() + i * stride;
      for (size_t j = 0; j < raw.size(); ++j) {
        const auto draw = [&](int64_t from, int64_t to) {
          return from + static_cast<int64_t>(rng() % (static_cast<uint64_t>(to - from) + 1));
        };
        const int64_t q = dtype.bits() > 8 ? draw(-1000, 1000) : draw(info.qmin, info.qmax);
        if (info.kind == DTypeKind::kFloat) {
          numbers[j] = normal(rng);
        } else if (info.kind == DTypeKind::kCodebook) {
          raw[j] = static_cast<uint8_t>(rng() % info.levels.size());
        } else if (info.kind == DTypeKind::kSign) {
          raw[j] = rng() & 1;
        } else {
          numbers[j] = static_cast<double>(q);
          raw[j] = static_cast<uint8_t>(static_cast<uint64_t>(q) & ((1u << (dtype.bits() & 15)) - 1u));
        }
      }
      if (dtype.is_code()) {
        pack_row_raw(dtype, raw.data(), cols, row);
      } else {
        pack_row(dtype, numbers.data(), cols, row);
      }
    }
  }

  // kind: "scale", "zero" (scale and integer zero) or "offset" (scale and real offset). Steps and groups as in
  // ScaleMap.
  void add_parameters(const std::string& kind, int64_t row_group, int64_t row_step, int64_t col_group, int64_t col_step,
                      std::mt19937& rng) {
    const int64_t count = (rows / row_group + 1) * std::max<int64_t>(row_step, 0) +
                          (cols / col_group + 1) * std::max<int64_t>(col_step, 0) + 1;
    std::uniform_real_distribution<float> real(0.25f, 2.0f);
    for (int64_t i = 0; i < count; ++i) {
      scale.push_back(real(rng));
      offset.push_back(real(rng) - 1.0f);
      zero.push_back(static_cast<int32_t>(rng() % 15) - 7);
    }
    map = {scale.data(),
           kind == "zero" ? zero.data() : nullptr,
           kind == "offset" ? offset.data() : nullptr,
           row_step,
           col_step,
           row_group,
           col_group};
  }

  float number(int64_t r, int64_t c) const {
    const uint8_t* row = bytes.data() + r * stride;
    if (dtype.is_code()) return code_values(dtype)[load_raw(row, c, dtype.bits())];
    if (dtype == dtypes::bf16 || dtype == dtypes::fp16) {
      uint16_t word;
      std::memcpy(&word, row + 2 * c, 2);
      return dtype == dtypes::bf16 ? bf16_to_float(word) : fp16_to_float(word);
    }
    if (dtype == dtypes::int32) return static_cast<float>(read<int32_t>(row, c));
    if (dtype == dtypes::int64) return static_cast<float>(read<int64_t>(row, c));
    return dtype == dtypes::fp64 ? static_cast<float>(read<double>(row, c)) : read<float>(row, c);
  }
  float value(int64_t r, int64_t c) const {
    float v = number(r, c);
    if (map.trivial()) return v;
    const int64_t i = map.index(r, c);
    if (map.zero != nullptr) v = v - static_cast<float>(map.zero[i]);
    if (map.scale != nullptr) v = v * map.scale[i];
    if (map.offset != nullptr) v = v + map.offset[i];
    return v;
  }

 private:
  template <typename T>
  static T read(const uint8_t* row, int64_t c) {
    T x;
    std::memcpy(&x, row + c * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  }
};

struct Problem {
  int64_t m, n, k;
  bool a_k_major, b_k_major;
  StoredMatrix a, b;
  std::vector<float> bias;
  DType c_dtype = dtypes::fp32;
  bool fold = false, accumulate = false;
  const RandomStream* sr = nullptr;
  int64_t gap = 3;                // elements between rows of C
  std::vector<uint8_t> c_before;  // with the gaps

  Problem(DType at, bool ak, DType bt, bool bk, int64_t m_, int64_t n_, int64_t k_, std::mt19937& rng)
      : m(m_),
        n(n_),
        k(k_),
        a_k_major(ak),
        b_k_major(bk),
        a(at, ak ? k : m, ak ? m : k, rng),
        b(bt, bk ? k : n, bk ? n : k, rng) {
    // Finite, small numbers in every float dtype.
    c_before.resize(static_cast<size_t>(m * (n + gap) * 8 + 64));
    uint32_t word = static_cast<uint32_t>(rng());
    for (uint8_t& byte : c_before) {
      word = word * 1664525u + 1013904223u;
      byte = static_cast<uint8_t>(0x30 + (word >> 28));
    }
  }

  void add_bias(std::mt19937& rng) {
    std::normal_distribution<float> normal;
    for (int64_t j = 0; j < n; ++j) bias.push_back(normal(rng));
  }

  kernels::GemmArgs args(void* c) const {
    kernels::GemmArgs g;
    g.m = m, g.n = n, g.k = k;
    g.a = {a.bytes.data(), a.dtype, layouts::canonical, a.stride, a_k_major, a.map};
    g.b = {b.bytes.data(), b.dtype, layouts::canonical, b.stride, b_k_major, b.map};
    g.c = c, g.c_dtype = c_dtype, g.ldc = n + gap;
    g.bias = bias.empty() ? nullptr : bias.data();
    g.fold_b_scale = fold, g.accumulate = accumulate, g.sr = sr;
    return g;
  }

  float a_at(int64_t i, int64_t t) const { return a_k_major ? a.value(t, i) : a.value(i, t); }
  float b_at(int64_t j, int64_t t) const { return b_k_major ? b.value(t, j) : b.value(j, t); }
  float b_number(int64_t j, int64_t t) const { return b_k_major ? b.number(t, j) : b.number(j, t); }
  float b_scale(int64_t j, int64_t t) const { return b.map.scale[b_k_major ? b.map.index(t, j) : b.map.index(j, t)]; }
  bool scale_by_n() const { return (b_k_major ? b.map.col_step : b.map.row_step) != 0; }

  // C's bytes after the epilogue of sums [m, n].
  std::vector<uint8_t> finished(const std::vector<float>& sums) const {
    std::vector<uint8_t> out = c_before;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float y = sums[static_cast<size_t>(i * n + j)];
        if (!bias.empty()) y = y + bias[static_cast<size_t>(j)];
        const int64_t at = i * (n + gap) + j;
        if (c_dtype == dtypes::fp32) {
          float old;
          std::memcpy(&old, &out[static_cast<size_t>(4 * at)], 4);
          y = accumulate ? old + y : y;
          std::memcpy(&out[static_cast<size_t>(4 * at)], &y, 4);
        } else {
          uint16_t word;
          std::memcpy(&word, &out[static_cast<size_t>(2 * at)], 2);
          y = accumulate ? bf16_to_float(word) + y : y;
          word = sr != nullptr ? bf16_from_float_stochastic(y, sr->bits16(static_cast<uint64_t>(i * n + j)))
                               : bf16_from_float(y);
          std::memcpy(&out[static_cast<size_t>(2 * at)], &word, 2);
        }
      }
    }
    return out;
  }

  // Values as fp32: A [m, k] and B [n, k]. `folded`: B's scale as fold_b_scale puts it.
  std::vector<float> a_values(bool folded) const {
    std::vector<float> x;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t t = 0; t < k; ++t) x.push_back(folded && !scale_by_n() ? a_at(i, t) * b_scale(0, t) : a_at(i, t));
    return x;
  }
  std::vector<float> b_values(bool folded) const {
    std::vector<float> w;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t t = 0; t < k; ++t) w.push_back(folded ? b_number(j, t) : b_at(j, t));
    return w;
  }

  // The definition of order chain512.
  std::vector<float> chain_sums() const {
    const std::vector<float> x = a_values(fold), w = b_values(fold);
    std::vector<float> sums;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const float *row = x.data() + i * k, *column = w.data() + j * k;
        float sum = 0;
        for (int64_t p = 0; p < k; p += 512) {
          float chain = 0;
          for (int64_t t = p; t < std::min(k, p + 512); ++t) chain = std::fma(row[t], column[t], chain);
          sum = p == 0 ? chain : sum + chain;
        }
        sums.push_back(fold && scale_by_n() ? sum * b_scale(j, 0) : sum);
      }
    }
    return sums;
  }

  // For every element of C the result in double, and the bound on what any order of fp32 additions may be off by: gamma
  // of k plus a few roundings, times the sum of magnitudes. fp32 outputs.
  struct Exact {
    double sum, bound;
  };
  std::vector<Exact> exact() const {
    const std::vector<float> x = a_values(false), w = b_values(false);
    std::vector<Exact> all;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        const auto add = [&](double term) {
          sum += term;
          magnitude += std::fabs(term);
        };
        for (int64_t t = 0; t < k; ++t) {
          add(static_cast<double>(x[static_cast<size_t>(i * k + t)]) *
              static_cast<double>(w[static_cast<size_t>(j * k + t)]));
        }
        if (!bias.empty()) add(static_cast<double>(bias[static_cast<size_t>(j)]));
        float old = 0;
        if (accumulate) std::memcpy(&old, &c_before[static_cast<size_t>(4 * (i * (n + gap) + j))], 4);
        add(static_cast<double>(old));
        const double gamma = (static_cast<double>(k) + 4) * 0x1p-24;
        all.push_back({sum, gamma / (1 - gamma) * magnitude});
      }
    }
    return all;
  }
};

inline const kernels::GemmKernel& gemm_kernel(const std::string& name) {
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels())
    if (kernel.name == name) return kernel;
  throw Error("no gemm row " + name);
}
inline bool runs_here(const kernels::GemmKernel& kernel) { return (kernel.needs & ~cpu_isa()) == 0; }

// The rows of order chain512 with B in this layout that this machine and the cap allow.
inline std::vector<const kernels::GemmKernel*> chain_kernels(Layout b = layouts::canonical) {
  std::vector<const kernels::GemmKernel*> rows;
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels())
    if (kernel.order == SumOrder::kChain512 && kernel.b_layout == b && runs_here(kernel)) rows.push_back(&kernel);
  return rows;
}

// C's bytes after a row ran. Padding of a derived layout of B is noise. panel: the dtype of the scales of groups in the
// order of layout vnni64, in which they must be exact; none: the row orders them.
inline std::vector<uint8_t> run_row(const kernels::GemmKernel& kernel, const Problem& problem,
                                    std::optional<DType> panel = {}) {
  std::vector<uint8_t> c = problem.c_before;
  kernels::GemmArgs args = problem.args(c.data());
  std::vector<uint64_t> packed;
  Rng rng(5);
  derive(rng, args.b, kernel.b_layout, problem.n, problem.k, packed);
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  if (panel) {
    const int64_t group = args.b.scale.col_group, groups = (problem.k + group - 1) / group;
    floats.resize(static_cast<size_t>(kernels::panel_scale_count(problem.n, groups)));
    kernels::order_panel_scales(args.b.scale, problem.n, problem.k, floats.data());
    for (const float x : floats) halves.push_back(fp16_from_float(x));
    args.b.panel_dtype = *panel;
    args.b.panel_scales = *panel == dtypes::fp32 ? static_cast<const void*>(floats.data()) : halves.data();
  }
  kernel.run(args);
  return c;
}

}  // namespace bitgrad::test
