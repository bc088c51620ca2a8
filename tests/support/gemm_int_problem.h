// Random integer products with all their data, for tests of kernels on every device.
#pragma once

#include <iterator>
#include <vector>

#include "bitgrad/dtype/layout.h"
#include "support/gemm_reference.h"

namespace bitgrad::test {

struct GemmShape {
  int64_t m, n, k;
};
// One third at the edges of tiles, words and blocks, or 0; the rest log-uniform.
inline GemmShape random_shape(Rng& rng) {
  constexpr int64_t kSmall[] = {0,  1,  2,  3,  4,  5,   6,   7,   15,  16,  17,  31,  32,  33,
                                48, 49, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257};
  constexpr int64_t kDeep[] = {0,   1,   3,   4,   31,  32,  33,  63,   64,   65,   480,  481,  511,  512,
                               513, 959, 960, 961, 991, 992, 993, 1023, 1024, 1025, 2047, 2048, 2049, 4097};
  const auto edge = [&](const auto& list) {
    return list[uniform_int(rng, 0, static_cast<int64_t>(std::size(list)) - 1)];
  };
  if (uniform_int(rng, 0, 2) == 0) return {edge(kSmall), edge(kSmall), edge(kDeep)};
  return {log_uniform(rng, 300), log_uniform(rng, 300), log_uniform(rng, 5000)};
}

// One product with all its data.
struct Case {
  kernels::GemmArgs args;
  CodeMatrix a, b;
  std::vector<float> scale_a, scale_b, bias;
  std::vector<int32_t> zero_a, zero_b;
  std::vector<int64_t> row_minus;
  std::vector<uint64_t> derived_a, derived_b;  // codes in a derived layout
  RandomStream stream{7, Purpose::kGradAccumulate, 11, 3};
  kernels::GemmOperand canonical_a, canonical_b;
};

inline void add_scale(Rng& rng, kernels::GemmOperand& x, int64_t free, bool zeros, std::vector<float>& scale,
                      std::vector<int32_t>& zero) {
  const bool per_tensor = uniform_int(rng, 0, 2) == 0;
  const size_t count = static_cast<size_t>(per_tensor ? 1 : std::max<int64_t>(free, 1));
  if (uniform_int(rng, 0, 4) != 0) {
    for (size_t i = 0; i < count; ++i) scale.push_back(std::ldexp(static_cast<float>(uniform_int(rng, 1, 999)), -12));
    x.scale.scale = scale.data();
  }
  if (zeros) {
    for (size_t i = 0; i < count; ++i) zero.push_back(static_cast<int32_t>(uniform_int(rng, -300, 300)));
    x.scale.zero = zero.data();
  }
  if (!per_tensor) (x.k_major ? x.scale.col_step : x.scale.row_step) = 1;
}

inline void make_case(Rng& rng, Case& t, DType da, DType db, GemmShape shape, bool general) {
  const bool a_k_major = general && uniform_int(rng, 0, 2) == 0, b_k_major = general && uniform_int(rng, 0, 2) == 0;
  t.args.m = shape.m;
  t.args.n = shape.n;
  t.args.k = shape.k;
  t.a = a_k_major ? random_codes(rng, da, shape.k, shape.m) : random_codes(rng, da, shape.m, shape.k);
  t.b = b_k_major ? random_codes(rng, db, shape.k, shape.n) : random_codes(rng, db, shape.n, shape.k);
  t.args.a = t.a.operand(a_k_major);
  t.args.b = t.b.operand(b_k_major);
  constexpr DType kOut[] = {dtypes::fp32, dtypes::fp32, dtypes::bf16, dtypes::int32, dtypes::int64};
  t.args.c_dtype = kOut[uniform_int(rng, 0, 4)];
  t.args.ldc = shape.n + uniform_int(rng, 0, 5);
  if (t.args.c_dtype == dtypes::fp32 || t.args.c_dtype == dtypes::bf16) {
    add_scale(rng, t.args.a, shape.m, general && uniform_int(rng, 0, 1) == 0, t.scale_a, t.zero_a);
    add_scale(rng, t.args.b, shape.n, general && uniform_int(rng, 0, 1) == 0, t.scale_b, t.zero_b);
    t.args.accumulate = uniform_int(rng, 0, 2) == 0;
    if (uniform_int(rng, 0, 1) == 0) {
      for (int64_t j = 0; j < shape.n; ++j)
        t.bias.push_back(std::ldexp(static_cast<float>(uniform_int(rng, -999, 999)), -5));
      t.bias.push_back(0);
      t.args.bias = t.bias.data();
    }
    if (uniform_int(rng, 0, 1) == 0) t.args.sr = &t.stream;
  }
  if (general && uniform_int(rng, 0, 3) == 0) {
    // Small ones, and some beyond int32.
    const int64_t max = uniform_int(rng, 0, 2) == 0 ? int64_t{1} << uniform_int(rng, 30, 62) : 100000;
    for (int64_t i = 0; i <= shape.m; ++i) t.row_minus.push_back(uniform_int(rng, -max, max));
    t.args.row_minus = t.row_minus.data();
  }
  t.canonical_a = t.args.a;
  t.canonical_b = t.args.b;
}

// Fills the fields of vnni64 beyond the last row and the last k, and the sums beyond the last row, with noise.
inline void spoil_vnni64(Rng& rng, DType dtype, int64_t free, int64_t k, void* out) {
  const int fields = vnni_fields(dtype.bits()), width = 8 / fields;
  const int64_t panels = panel_count(free), steps = vnni_steps(dtype.bits(), k);
  auto* bytes = static_cast<uint8_t*>(out);
  for (int64_t p = 0; k > 0 && p < panels; ++p) {
    const int64_t first = p / kVnniPanels * kVnniPanels;
    for (int64_t s = 0; s < steps; ++s) {
      uint8_t* line =
          bytes + vnni_group_start(dtype.bits(), first, k) + (s * vnni_group_panels(first, free) + p - first) * 64;
      for (int64_t i = 0; i < 64; ++i) {
        for (int f = 0; f < fields; ++f) {
          const bool pad = p * 16 + i / 4 >= free || 4 * (s * fields + f) + i % 4 >= k;
          if (pad) line[i] = static_cast<uint8_t>(line[i] ^ ((rng() & ((1u << width) - 1)) << (f * width)));
        }
      }
    }
  }
  auto* sums = reinterpret_cast<uint32_t*>(bytes + panels * steps * 64);
  for (int64_t r = free; k > 0 && r < panels * 16; ++r) sums[r] = static_cast<uint32_t>(rng());
}

inline bool is_vnni64(Layout layout) { return layout == layouts::vnni64 || layout == layouts::vnni64_t; }

// Repacks an operand into a layout and fills the bits beyond its last code with noise.
inline void derive(Rng& rng, kernels::GemmOperand& x, Layout layout, int64_t free, int64_t k,
                   std::vector<uint64_t>& out) {
  if (layout == layouts::canonical) return;
  const LayoutInfo& info = layout.info();
  const int64_t rows = x.k_major ? k : free, cols = x.k_major ? free : k;
  out.assign(static_cast<size_t>(info.bytes(x.dtype, rows, cols) / 8 + 1), 0);
  info.pack(x.dtype, rows, cols, x.data, x.stride, out.data());
  if (is_vnni64(layout)) spoil_vnni64(rng, x.dtype, free, k, out.data());
  x.data = out.data();
  x.layout = layout;
  if (layout == layouts::planes && k % 64 != 0) {
    const int64_t per_row = plane_words(k);
    for (int64_t r = 0; r < x.dtype.bits() * free; ++r)
      out[static_cast<size_t>((r + 1) * per_row - 1)] |= rng() << (k % 64);
  }
  if (layout == layouts::panels16) {
    auto* words = reinterpret_cast<uint32_t*>(out.data());
    const int64_t per_panel = panel_words(k), panels = panel_count(free);
    for (int64_t p = 0; p < x.dtype.bits() * panels; ++p) {
      for (int64_t lane = 0; lane < kPanelRows; ++lane) {
        uint32_t* column = words + p * per_panel * kPanelRows + lane;
        if (k % 32 != 0) column[(per_panel - 1) * kPanelRows] |= static_cast<uint32_t>(rng()) << (k % 32);
        if (p % panels * kPanelRows + lane >= free)
          for (int64_t w = 0; w < per_panel; ++w) column[w * kPanelRows] = static_cast<uint32_t>(rng());
      }
    }
  }
}

// Counts wrong elements of a kernel's product of codes a [m, k] and b [n, k], zero points already subtracted.
inline int64_t wrong_elements(Rng& rng, const kernels::GemmKernel& kernel, const kernels::GemmArgs& args,
                              const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return wrong_elements(rng, kernel, args, [&](int64_t i, int64_t j, uint64_t old) {
    const int64_t minus = args.row_minus == nullptr ? 0 : args.row_minus[i];
    const int64_t acc = reference_dot(a.data() + i * args.k, b.data() + j * args.k, args.k, minus);
    return reference_element(args, i, j, acc, old);
  });
}

// Whether a vnni64 kernel does not support this pair or storage order, although the tests of byte kernels cover it.
inline bool left_out(const kernels::GemmKernel& kernel, const kernels::GemmArgs& args) {
  if (!is_vnni64(kernel.b_layout)) return false;
  return args.b.k_major != (kernel.b_layout == layouts::vnni64_t) ||
         (kernel.name.find("avx2") != std::string_view::npos && args.b.dtype.bits() == 8);
}

}  // namespace bitgrad::test
