// bench_kernels: the kernels of a training step other than products (quantize, pack, dropout, norms, reductions,
// updates), measured by Google Benchmark. BITGRAD_ISA caps the ISA, so that two runs compare kernels:
// BITGRAD_ISA=avx2 bench_kernels --benchmark_filter=quantize
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/pack.h"
#include "bitgrad/kernels/quantize.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/tensor/tensor.h"

namespace {

using namespace bitgrad;

constexpr int64_t kRows = 100, kCols = 784;  // a batch of MNIST
const RandomStream kDraws{1, Purpose::kUser, site_id("bench_kernels"), 0};

Tensor uniform(int64_t rows, int64_t cols) {
  Tensor t = Tensor::empty({rows, cols}, dtypes::fp32);
  for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = kDraws.uniform(static_cast<uint64_t>(i)) * 2 - 1;
  return t;
}
Tensor mask(int64_t rows, int64_t cols) { return Tensor::zeros({rows, cols}, dtypes::bint1); }
void count(benchmark::State& state, int64_t elements) { state.SetItemsProcessed(state.iterations() * elements); }

// fp32 [100,784] -> codes with the straight-through mask.
void quantize_to(benchmark::State& state, DType dtype, CodeRule rule) {
  const Tensor x = uniform(kRows, kCols), codes = Tensor::zeros(x.shape(), dtype), bits = mask(kRows, kCols);
  const float s = 0.05f;
  kernels::QuantizeArgs args;
  args.rows = kRows;
  args.cols = kCols;
  args.x = x.as<float>();
  args.ldx = kCols;
  args.dtype = dtype;
  args.codes = codes.data();
  args.stride = codes.stride();
  args.rule = rule;
  args.lo = dtype.info().qmin;
  args.hi = dtype.info().qmax;
  if (rule == CodeRule::kInverse) args.scale.scale = &s;
  args.ste = SteRule::kClip;
  args.mask = static_cast<uint64_t*>(bits.data());
  for (auto _ : state) quantize(args);
  count(state, x.numel());
}
BENCHMARK_CAPTURE(quantize_to, bint1, dtypes::bint1, CodeRule::kSign);
BENCHMARK_CAPTURE(quantize_to, ternary, dtypes::ternary, CodeRule::kOffset);
BENCHMARK_CAPTURE(quantize_to, int4, dtypes::int4, CodeRule::kInverse);
BENCHMARK_CAPTURE(quantize_to, int8, dtypes::int8, CodeRule::kInverse);

void dropout_codes(benchmark::State& state) {
  const Tensor in = Tensor::zeros({kRows, kCols}, dtypes::bint1), out = Tensor::zeros({kRows, kCols}, dtypes::ternary),
               bits = mask(kRows, kCols);
  auto* words = static_cast<uint64_t*>(bits.data());
  for (auto _ : state) {
    kernels::keep_mask({kRows, kCols, &kDraws, 0, 13107, words});
    kernels::DropCodesArgs args;
    args.rows = kRows;
    args.cols = kCols;
    args.from = dtypes::bint1;
    args.to = dtypes::ternary;
    args.in = in.data();
    args.in_stride = in.stride();
    args.mask = words;
    args.out = out.data();
    args.out_stride = out.stride();
    kernels::drop_codes(args);
  }
  count(state, in.numel());
}
BENCHMARK(dropout_codes);

void pack_to(benchmark::State& state, DType dtype, Layout layout) {
  const Tensor in = Tensor::zeros({kRows, kCols}, dtype);
  const Tensor out = Tensor::empty_layout(in.shape(), dtype, layout, MemoryKind::kDerived);
  for (auto _ : state) kernels::pack({dtype, kRows, kCols, in.data(), in.stride(), layout, out.data()});
  count(state, in.numel());
}
// Every derived layout, with one dtype of each width that it supports.
void register_pack_to() {
  for (const Layout layout : all_layouts())
    for (const DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int4, dtypes::int8})
      if (layout != layouts::canonical && layout.info().supports(dtype))
        benchmark::RegisterBenchmark(
            ("pack_to/" + std::string(dtype.name()) + "_" + std::string(layout.name())).c_str(), &pack_to, dtype,
            layout);
}

void column_sums(benchmark::State& state) {
  const Tensor x = uniform(kRows, 256), out = Tensor::zeros({256}, dtypes::fp32);
  kernels::ReduceArgs args;
  args.axis = kernels::ReduceAxis::kColumns;
  args.rows = kRows;
  args.cols = 256;
  args.x = x.as<float>();
  args.ldx = 256;
  args.out = out.as<float>();
  for (auto _ : state) reduce(args);
  count(state, x.numel());
}
BENCHMARK(column_sums);

// Optimizers; items are elements. 4096 elements and their state fit in L2; 1 << 22 are read from memory.
kernels::AdamArgs adam_args(const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v, int64_t n, bool late) {
  kernels::AdamArgs args;
  args.n = n;
  args.w = w.as<float>();
  args.g = g.as<float>();
  args.m = m.as<float>();
  args.v = v.as<float>();
  args.lr = 1e-3f;
  args.c1 = late ? 1.0f : 0.1f;  // after about 160 steps m needs no correction
  args.c2 = late ? 0.5f : 0.001f;
  return args;
}

void adam(benchmark::State& state, bool late) {
  const int64_t n = state.range(0);
  const Tensor w = uniform(1, n), g = uniform(1, n), m = uniform(1, n), v = Tensor::zeros({n}, dtypes::fp32);
  const kernels::AdamArgs args = adam_args(w, g, m, v, n, late);
  for (auto _ : state) kernels::adam_update(args);
  count(state, n);
}
BENCHMARK_CAPTURE(adam, first_steps, false)->Arg(4096)->Arg(1 << 22);
BENCHMARK_CAPTURE(adam, later_steps, true)->Arg(4096)->Arg(1 << 22);

void sgd_momentum(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Tensor w = uniform(1, n), g = uniform(1, n), b = Tensor::zeros({n}, dtypes::fp32);
  for (auto _ : state) kernels::sgd_update({n, w.as<float>(), g.as<float>(), b.as<float>(), 1e-3f, 0.9f, 0.0f, false});
  count(state, n);
}
BENCHMARK(sgd_momentum)->Arg(4096)->Arg(1 << 22);

// Adam with narrow moments: they are widened, updated and rounded piece by piece.
void adam_narrow(benchmark::State& state, MomentKind kind) {
  const int64_t n = state.range(0), piece = 2048;
  const Tensor w = uniform(1, n), g = uniform(1, n), m = Tensor::zeros({piece}, dtypes::fp32),
               v = Tensor::zeros({piece}, dtypes::fp32), m16 = Tensor::zeros({n}, dtypes::bf16),
               v16 = Tensor::zeros({n}, dtypes::bf16), m8 = Tensor::zeros({n}, dtypes::int8),
               v8 = Tensor::zeros({n}, dtypes::uint8), ms = Tensor::zeros({n / kernels::kMomentBlock}, dtypes::fp32),
               vs = Tensor::zeros({n / kernels::kMomentBlock}, dtypes::fp32);
  const uint64_t second = uint64_t{1} << 40;
  kernels::AdamArgs args = adam_args(w, g, m, v, piece, true);
  for (auto _ : state) {
    for (int64_t i = 0; i < n; i += piece) {
      const int64_t block = i / kernels::kMomentBlock;
      const uint64_t e = static_cast<uint64_t>(i);
      args.w = w.as<float>() + i;
      args.g = g.as<float>() + i;
      if (kind == MomentKind::kBf16) {
        kernels::from_bf16(piece, m16.as<uint16_t>() + i, args.m);
        kernels::from_bf16(piece, v16.as<uint16_t>() + i, args.v);
        kernels::adam_update(args);
        kernels::to_bf16(piece, args.m, m16.as<uint16_t>() + i);
        kernels::to_bf16_stochastic(piece, args.v, kDraws, second + e, v16.as<uint16_t>() + i);
      } else {
        kernels::moments_from_int8(piece, m8.as<int8_t>() + i, ms.as<float>() + block, args.m);
        kernels::squares_from_uint8(piece, v8.as<uint8_t>() + i, vs.as<float>() + block, args.v);
        kernels::adam_update(args);
        kernels::moments_to_int8(piece, args.m, kDraws, e, m8.as<int8_t>() + i, ms.as<float>() + block);
        kernels::squares_to_uint8(piece, args.v, kDraws, second + e, v8.as<uint8_t>() + i, vs.as<float>() + block);
      }
    }
  }
  count(state, n);
}
BENCHMARK_CAPTURE(adam_narrow, bf16, MomentKind::kBf16)->Arg(4096)->Arg(1 << 22);
BENCHMARK_CAPTURE(adam_narrow, int8, MomentKind::kInt8)->Arg(4096)->Arg(1 << 22);

void draws16(benchmark::State& state) {
  std::vector<uint16_t> out(4096);
  for (auto _ : state) kDraws.fill_bits16(0, 4096, out.data());
  count(state, 4096);
}
BENCHMARK(draws16);

void narrow(benchmark::State& state, int form) {
  const Tensor x = uniform(1, 4096), y = Tensor::zeros({4096}, dtypes::bf16), s = Tensor::zeros({16}, dtypes::fp32);
  for (int i = 0; i < 4096; ++i) x.as<float>()[i] = x.as<float>()[i] * x.as<float>()[i];
  for (auto _ : state) {
    if (form == 0) kernels::to_bf16(4096, x.as<float>(), y.as<uint16_t>());
    if (form == 1) kernels::to_bf16_stochastic(4096, x.as<float>(), kDraws, 0, y.as<uint16_t>());
    if (form == 2)
      kernels::moments_to_int8(4096, x.as<float>(), kDraws, 0, static_cast<int8_t*>(y.data()), s.as<float>());
    if (form == 3)
      kernels::squares_to_uint8(4096, x.as<float>(), kDraws, 0, static_cast<uint8_t*>(y.data()), s.as<float>());
    if (form == 4) kernels::from_bf16(4096, y.as<uint16_t>(), x.as<float>());
    if (form == 5) kernels::moments_from_int8(4096, static_cast<int8_t*>(y.data()), s.as<float>(), x.as<float>());
    if (form == 6) kernels::squares_from_uint8(4096, static_cast<uint8_t*>(y.data()), s.as<float>(), x.as<float>());
  }
  count(state, 4096);
}
BENCHMARK_CAPTURE(narrow, bf16_nearest, 0);
BENCHMARK_CAPTURE(narrow, bf16_by_draws, 1);
BENCHMARK_CAPTURE(narrow, mean_int8, 2);
BENCHMARK_CAPTURE(narrow, square_uint8, 3);
BENCHMARK_CAPTURE(narrow, kernels::from_bf16, 4);
BENCHMARK_CAPTURE(narrow, from_mean_int8, 5);
BENCHMARK_CAPTURE(narrow, from_square_uint8, 6);

// From the gradient of a window to that of a step: (mean, bounds of the binary rule, value clip).
void finish(benchmark::State& state, float divisor, bool bounds, float clip) {
  const Tensor g = uniform(1, 4096), w = uniform(1, 4096);
  kernels::FinishGradientArgs args;
  args.n = 4096;
  args.g = g.as<float>();
  args.divisor = divisor;
  args.w = bounds ? w.as<float>() : nullptr;
  args.clip_value = clip;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels::finish_gradient(args));
    args.g[0] = 1.0f;
  }
  count(state, 4096);
}
BENCHMARK_CAPTURE(finish, divide, 1.0f, false, 0.0f);
BENCHMARK_CAPTURE(finish, divide_bounds_clip, 1.0f, true, 0.5f);

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(1);
  register_pack_to();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
