// bench_kernels: the kernels of a training step beside the products (quantize, pack, dropout, norms, reductions,
// updates), by Google Benchmark. BITGRAD_ISA caps the ISA, so two runs compare rows:  BITGRAD_ISA=avx2 bench_kernels
// --benchmark_filter=quantize
#include <benchmark/benchmark.h>

#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/pack.h"
#include "bitgrad/kernels/quantize.h"
#include "bitgrad/kernels/reduce.h"
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
  QuantizeArgs args;
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
    keep_mask({kRows, kCols, &kDraws, 0, 13107, words});
    DropCodesArgs args;
    args.rows = kRows;
    args.cols = kCols;
    args.from = dtypes::bint1;
    args.to = dtypes::ternary;
    args.in = in.data();
    args.in_stride = in.stride();
    args.mask = words;
    args.out = out.data();
    args.out_stride = out.stride();
    drop_codes(args);
  }
  count(state, in.numel());
}
BENCHMARK(dropout_codes);

void pack_to(benchmark::State& state, DType dtype, Layout layout) {
  const Tensor in = Tensor::zeros({kRows, kCols}, dtype);
  const Tensor out = Tensor::empty_layout(in.shape(), dtype, layout, MemoryKind::kDerived);
  for (auto _ : state) pack({dtype, kRows, kCols, in.data(), in.stride(), layout, out.data()});
  count(state, in.numel());
}
BENCHMARK_CAPTURE(pack_to, ternary_planes, dtypes::ternary, layouts::planes);
BENCHMARK_CAPTURE(pack_to, bint1_panels16, dtypes::bint1, layouts::panels16);

void column_sums(benchmark::State& state) {
  const Tensor x = uniform(kRows, 256), out = Tensor::zeros({256}, dtypes::fp32);
  ReduceArgs args;
  args.axis = ReduceAxis::kColumns;
  args.rows = kRows;
  args.cols = 256;
  args.x = x.as<float>();
  args.ldx = 256;
  args.out = out.as<float>();
  for (auto _ : state) reduce(args);
  count(state, x.numel());
}
BENCHMARK(column_sums);

void adam(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Tensor w = uniform(1, n), g = uniform(1, n), m = Tensor::zeros({n}, dtypes::fp32),
               v = Tensor::zeros({n}, dtypes::fp32);
  AdamArgs args;
  args.n = n;
  args.w = w.as<float>();
  args.g = g.as<float>();
  args.m = m.as<float>();
  args.v = v.as<float>();
  args.lr = 1e-3f;
  args.c1 = 0.1f;
  args.c2 = 0.001f;
  for (auto _ : state) adam_update(args);
  count(state, n);
}
BENCHMARK(adam)->Arg(1 << 16)->Arg(1 << 22);

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
