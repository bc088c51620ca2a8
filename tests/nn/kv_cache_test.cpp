// The cache of keys and values: what is stored, rounded and read back.
#include "bitgrad/nn/kv_cache.h"

#include <cmath>
#include <limits>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/state.h"
#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "kernels/quantize.h"
#include "nn/bf16_layers.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Q8_0 of a block, restated: codes by the fp32 scale, values by its fp16.
std::vector<float> rounded_block(const std::vector<float>& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  const float d = most / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f, held = fp16_to_float(fp16_from_float(d));
  std::vector<float> out;
  for (const float v : x) out.push_back(std::rint(v * inverse) * held);
  return out;
}

float expected(KvKind kind, const std::vector<float>& row, size_t c) {
  if (kind == KvKind::kFp32) return row[c];
  if (kind == KvKind::kBf16) return bf16_to_float(bf16_from_float(row[c]));
  const size_t begin = c / 32 * 32, end = std::min(begin + 32, row.size());
  return rounded_block(
      {row.begin() + static_cast<std::ptrdiff_t>(begin), row.begin() + static_cast<std::ptrdiff_t>(end)})[c - begin];
}

// Rows [samples, s, features] of blocks of 64, in which number c of row r is at `at`.
template <typename At>
Tensor rows_of_blocks(const Tensor& x, int64_t features, At at) {
  const int64_t samples = x.shape()[0], blocks = x.shape()[1], block = 64 * features;
  REQUIRE(x.numel() == samples * blocks * block);
  Tensor out = Tensor::empty({samples, blocks * 64, features}, dtypes::fp32);
  const std::vector<float> numbers = x.to_vector();
  for (int64_t n = 0; n < samples * blocks; ++n)
    for (int64_t r = 0; r < 64; ++r)
      for (int64_t c = 0; c < features; ++c)
        out.as<float>()[n * block + r * features + c] = numbers[static_cast<size_t>(n * block + at(r, c))];
  return out;
}
// The keys of a cache as rows, from transposed blocks.
Tensor key_rows(const KvCache& cache, int64_t rows) {
  Tensor k = cache.keys(rows);
  if (k.shape().rank() == 3) return k;
  REQUIRE(k.shape()[3] == 64);
  return rows_of_blocks(k, k.shape()[2], [](int64_t r, int64_t c) { return c * 64 + r; });
}
// The values of a cache as rows, from blocks of heads.
Tensor value_rows(const KvCache& cache, int64_t rows) {
  Tensor v = cache.values(rows);
  if (v.shape().rank() == 3) return v;
  REQUIRE(v.shape()[3] == 64);
  const int64_t heads = v.shape()[2], dim = v.shape()[4];
  return rows_of_blocks(v, heads * dim, [&](int64_t r, int64_t c) { return (c / dim * 64 + r) * dim + c % dim; });
}

// "" where rows of the cache are those of x at column `begin`.
std::string off(const Tensor& got, const Tensor& x, KvKind kind, int64_t begin, int64_t features, int64_t rows) {
  const std::vector<float> y = got.to_vector(), all = x.to_vector();
  const int64_t t = x.shape()[1], held = got.shape()[1];
  for (int64_t n = 0; n < x.shape()[0]; ++n)
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::ptrdiff_t>((n * t + r) * x.cols() + begin);
      const std::vector<float> row(all.begin() + at, all.begin() + at + features);
      for (int64_t c = 0; c < features; ++c)
        if (y[static_cast<size_t>((n * held + r) * features + c)] != expected(kind, row, static_cast<size_t>(c)))
          return concat("sample ", n, ", row ", r, ", feature ", c);
    }
  return "";
}

}  // namespace

TEST_CASE("a cache gives back the rows that it was given, by its rounding") {
  const std::vector<std::pair<int64_t, int64_t>> widths{{1, 1},  {8, 2},  {31, 1}, {32, 4},
                                                        {33, 3}, {64, 1}, {96, 2}, {100, 5}};
  for (const KvKind kind : {KvKind::kFp32, KvKind::kBf16, KvKind::kInt8})
    for (const auto& [features, heads] : widths) {
      INFO(kv_kind_name(kind) << ", " << features << " features of " << heads << " heads");
      const int64_t samples = 3, positions = 131, begin = 5;
      const Tensor x = random_tensor({samples, positions, begin + 2 * features + 2}, dtypes::fp32, 4, -3, 3);
      KvCache cache({kind, samples, positions}, features, heads);
      const FlagWord word;
      uint32_t& flag = *word.word();
      for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 1}, {5, 60}, {65, 66}}) {
        const Tensor part = slice(Var(x), 1, first, first + count).value();
        cache.store(part, begin, first, &flag);
      }
      CHECK(off(key_rows(cache, positions), x, kind, begin, features, positions) == "");
      CHECK(off(value_rows(cache, positions), x, kind, begin + features, features, positions) == "");
      CHECK(off(key_rows(cache, 7), x, kind, begin, features, 7) == "");
      CHECK(key_rows(cache, 7).shape()[1] >= 7);
      CHECK(flag == 0);
      // Rows are replaced.
      const Tensor other = random_tensor(x.shape(), dtypes::fp32, 5, -3, 3);
      cache.store(other, begin, 0, &flag);
      CHECK(off(key_rows(cache, positions), other, kind, begin, features, positions) == "");
    }
}

TEST_CASE("int8: the error of a number is half a code and the rounding of the scale; extremes are held or flagged") {
  const int64_t features = 32;
  const auto stored = [&](float scale, uint32_t& flag) {
    Tensor x = random_tensor({1, 4, 2 * features}, dtypes::fp32, 6, -1, 1);
    for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] *= scale;
    KvCache cache({KvKind::kInt8, 1, 4}, features, 1);
    cache.store(x, 0, 0, &flag);
    return std::pair{x, cache.keys(4)};
  };
  for (const float scale : {1e-9f, 1e-6f, 1e-3f, 1.0f, 1e6f}) {
    const FlagWord word;
    uint32_t& flag = *word.word();
    const auto [x, y] = stored(scale, flag);
    CHECK(flag == 0);
    for (int64_t r = 0; r < 4; ++r) {
      double most = 0;
      for (int64_t c = 0; c < features; ++c)
        most = std::max(most, std::fabs(static_cast<double>(x.as<float>()[r * 2 * features + c])));
      const double half = most / 254, of_scale = std::max(most * 0x1p-11, 127 * 0x1p-25);
      for (int64_t c = 0; c < features; ++c) {
        const double error = static_cast<double>(y.as<float>()[r * features + c]) -
                             static_cast<double>(x.as<float>()[r * 2 * features + c]);
        CHECK(std::fabs(error) <= (half + of_scale) * (1 + 1e-5));
      }
    }
  }
  for (const float bad : {9e6f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Tensor x = Tensor::zeros({1, 1, 2 * features}, dtypes::fp32);
    x.as<float>()[3] = bad;
    const FlagWord word;
    uint32_t& flag = *word.word();
    KvCache cache({KvKind::kInt8, 1, 1}, features, 1);
    cache.store(x, 0, 0, &flag);
    CHECK((flag & kFlagNonFinite) != 0);
    for (const float y : cache.keys(1).to_vector()) CHECK(y == 0);
  }
}

TEST_CASE("a cache reports shapes that do not fit") {
  CHECK(contains(error_of([] { KvCaches({.samples = 0, .positions = 4}); }),
                 "[kv_cache] got 0 samples of 4 positions, expected at least 1 of each"));
  KvCaches caches({KvKind::kBf16, 2, 4});
  const int key = 0;
  KvCache& cache = caches.of(&key, 6, 2);
  CHECK(&caches.of(&key, 6, 2) == &cache);
  CHECK(caches.bytes() == cache.bytes());
  CHECK(cache.bytes() == (current_device().is_cpu() ? 0 : 2 * 2 * 4 * 6 * 2));  // the CPU's grows
  CHECK(contains(error_of([&] { caches.of(&key, 7, 1); }), "the layer had 6 features of k in 2 heads, got 7 in 1"));
  CHECK(contains(error_of([&] { caches.of(&key, 6, 3); }), "the layer had 6 features of k in 2 heads, got 6 in 3"));
  const FlagWord word;
  uint32_t& flag = *word.word();
  CHECK(contains(error_of([&] {
                   cache.store(Tensor::zeros({2, 3, 12}, dtypes::fp32), 0, 2, &flag);
                 }),
                 "rows at positions 2 to 4: got a cache of 4 positions"));
  CHECK(contains(error_of([&] {
                   cache.store(Tensor::zeros({1, 3, 12}, dtypes::fp32), 0, 0, &flag);
                 }),
                 "rows must be [2,t,c] fp32 with k and v of 6 features at column 0, got"));
  CHECK(contains(error_of([&] {
                   KvCache({KvKind::kFp32, 1, 4}, 6, 4);
                 }),
                 "[kv_cache] got 6 features of 4 heads, expected a multiple"));
  CHECK(contains(error_of([&] { cache.keys(5); }), "rows: got 5 of 4"));
  if (!current_device().is_cpu()) return;
  CHECK(contains(error_of([&] { cache.keys(3); }), "rows: got 3, but only 0 have memory: no later row was stored"));
}

TEST_CASE("on the CPU a cache grows with its rows, and keeps them") {
  if (!current_device().is_cpu()) return;
  const int64_t samples = 2, features = 33, positions = 700;
  const Tensor x = random_tensor({samples, positions, 2 * features}, dtypes::fp32, 4, -3, 3);
  // Rows stored, and rows that then have memory: whole blocks of 64, a quarter more than before, at most all.
  const std::vector<std::pair<int64_t, int64_t>> steps{{1, 64},    {64, 64},   {65, 128},  {140, 192}, {300, 320},
                                                       {321, 448}, {449, 576}, {600, 700}, {700, 700}};
  for (const KvKind kind : {KvKind::kFp32, KvKind::kBf16, KvKind::kInt8}) {
    INFO(kv_kind_name(kind));
    KvCache cache({kind, samples, positions}, features, 3);
    const FlagWord word;
    CHECK(contains(error_of([&] { cache.keys(0); }), "rows: got 0, but only 0 have memory"));
    cache.store(Tensor::empty({samples, 0, 2 * features}, dtypes::fp32), 0, 0, word.word());  // no row
    CHECK(value_rows(cache, 0).shape()[2] == features);
    int64_t stored = 0;
    for (const auto& [rows, room] : steps) {
      INFO(rows << " rows");
      cache.store(slice(Var(x), 1, stored, rows).value(), 0, stored, word.word());
      stored = rows;
      CHECK(off(key_rows(cache, rows), x, kind, 0, features, rows) == "");
      CHECK(off(value_rows(cache, rows), x, kind, features, features, rows) == "");
      const int64_t blocks = (room + 63) / 64 * 64;
      const int64_t bytes = kind == KvKind::kFp32   ? 8 * samples * features * blocks
                            : kind == KvKind::kBf16 ? int64_t{4} * samples * features * blocks
                                                    : 2 * samples * room * (40 + 2 * 2);
      CHECK(cache.bytes() == bytes);
    }
  }
}

TEST_CASE("attention and positions go on where their sequence is") {
  const Tensor x = random_tensor({2, 9, 32}, dtypes::fp32, 7, -2, 2);
  const auto part = [&](const Tensor& t, int64_t begin, int64_t end) { return slice(Var(t), 1, begin, end); };
  for (const DType values : {dtypes::fp32, dtypes::bf16})
    for (const bool interleaved : {false, true}) {
      const Tensor in = values == dtypes::bf16 ? rounded(x) : x;
      Form form;
      form.sample = {9, 32};
      form.dtype = form.values = values;
      form.inner = true;
      form.training = false;
      const LayerSpec attention =
          layer("attention", {{"heads", 4}, {"kv_heads", 2}, {"rope", 30.0}, {"interleaved", interleaved}});
      for (const LayerSpec& spec : {attention, layer("positions", {{"context", 12}, {"std", 0.5}})}) {
        const auto module = make_layer(spec);
        module->plan(form);
        StepState state;
        state.training = false;
        module->initialize("layers.0", state);
        const NoGrad off;
        const Tensor all = (*module)(Var(in)).value();
        state.sequence.caches = std::make_shared<KvCaches>(KvSpec{KvKind::kFp32, 2, 9});
        for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 5}, {5, 9}, {2, 6}}) {
          state.sequence.first = begin;
          const Tensor y = (*module)(part(in, begin, end)).value();
          CHECK(y.dtype() == all.dtype());
          CHECK(y.elements() == part(all, begin, end).value().elements());
        }
      }
    }
}

TEST_CASE("attention has the same bits while its cache grows") {
  const int64_t rows = 230;
  const Tensor x = random_tensor({2, rows, 32}, dtypes::fp32, 8, -2, 2);
  Form form;
  form.sample = {rows, 32};
  form.training = false;
  const auto module = make_layer(layer("attention", {{"heads", 4}, {"kv_heads", 2}, {"rope", 30.0}}));
  module->plan(form);
  StepState state;
  state.training = false;
  module->initialize("layers.0", state);
  const NoGrad off;
  const Tensor all = (*module)(Var(x)).value();
  state.sequence.caches = std::make_shared<KvCaches>(KvSpec{KvKind::kFp32, 2, 300});
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 64}, {64, 65}, {65, 140}, {140, 141}, {141, 230}}) {
    INFO(begin << " to " << end);
    state.sequence.first = begin;
    const Tensor y = (*module)(slice(Var(x), 1, begin, end)).value();
    CHECK(y.elements() == slice(Var(all), 1, begin, end).value().elements());
  }
}

TEST_CASE("rows in the middle of a sequence need a cache, no tape, and a table that is long enough") {
  StepState state;
  state.training = false;
  const auto run_at = [&](const LayerSpec& spec, int64_t first, bool cache, bool tracked = false) {
    const auto module = make_layer(spec);
    Form form;
    form.sample = {3, 32};
    form.training = false;
    module->plan(form);
    module->initialize("layers.0", state);
    state.sequence = {first, cache ? std::make_shared<KvCaches>(KvSpec{KvKind::kFp32, 1, 5}) : nullptr};
    const Tensor x = random_tensor({1, 3, 32}, dtypes::fp32, 1);
    return error_of([&] {
      Tape tape;
      AccumulateSink sink;
      (*module)(tracked ? tape.leaf(x, &sink, dtypes::fp32) : Var(x));
    });
  };
  const LayerSpec attention = layer("attention", {{"heads", 4}, {"kv_heads", 2}});
  CHECK(contains(run_at(attention, 2, false), "rows from position 2 on: got no cache of the keys and values"));
  CHECK(run_at(attention, 2, true).empty());
  CHECK(contains(run_at(attention, 3, true), "rows at positions 3 to 5: got a cache of 5 positions"));
  CHECK(
      contains(run_at(attention, 0, true, true), "keys and values in a cache carry no gradients: run without a tape"));
  CHECK(contains(run_at(layer("positions", {{"context", 4}}), 2, false), "context: got rows at positions 2 to 4 of 4"));
}

TEST_CASE("a row alone has the bits that it has among others, for every pair of operands and kernel choice") {
  const BitsMode before = bits_mode();
  for (const BitsMode mode : {BitsMode::kFast, BitsMode::kStrict})
    for (const DType values : {dtypes::fp32, dtypes::bf16})
      for (const DType dtype : {dtypes::fp32, dtypes::bint1, dtypes::ternary, dtypes::int2, dtypes::int4, dtypes::int8})
        for (const int64_t k : {64, 700}) {
          set_bits_mode(mode);
          INFO(dtype << ", k " << k << ", strict " << (mode == BitsMode::kStrict));
          const Tensor raw = random_tensor({300, k}, dtypes::fp32, 2);
          Tensor w = raw;
          if (dtype.is_code()) w = quantize_dynamic(usual_weight_spec(dtype), raw);
          if (dtype == dtypes::ternary || dtype == dtypes::bint1)
            w = w.without_quant();  // sums by tables from 8 rows on
          const Tensor wide_x = random_tensor({40, k}, dtypes::fp32, 3),
                       x = values == dtypes::bf16 ? rounded(wide_x) : wide_x;
          ProductModes modes;
          modes.row_alone = true;
          const std::vector<double> all = linear(Var(x), Var(w), {}, modes).value().elements();
          for (const int64_t rows : {1, 5, 8, 16})
            for (const int64_t at : {0, 24}) {
              const std::vector<double> some =
                  linear(Var(x.row_slice(at, at + rows)), Var(w), {}, modes).value().elements();
              CHECK(std::equal(some.begin(), some.end(), all.begin() + at * 300));
            }
        }
  set_bits_mode(before);
}

// A number is held with a relative error u (bf16), or within half a code of its block's largest (int8). Scores of
// attention move by at most |q| |dk| / sqrt(d), so probabilities by a factor e^(2 of that); values by dv. Here the
// bound is put on what a layer gives: |dy| <= |dv| + (e^(2 ds) - 1) * max |v|.
TEST_CASE("bf16 and int8 caches stay within what their roundings allow") {
  const int64_t heads = 4, kv_heads = 2, dim = 8, rows = 70;
  const LayerSpec spec{.kind = "attention", .attributes = {{"heads", heads}, {"kv_heads", kv_heads}}};
  const Tensor x = random_tensor({1, rows, (heads + 2 * kv_heads) * dim}, dtypes::fp32, 3, -2, 2);
  Form in;
  in.sample = {rows, x.cols()};
  in.training = false;
  const auto module = make_layer(spec);
  StepState state;
  state.training = false;
  module->initialize("layers.0", state);
  module->plan(in);
  const NoGrad off;
  const std::vector<double> exact = (*module)(Var(x)).value().elements();
  for (const KvKind kind : {KvKind::kFp32, KvKind::kBf16, KvKind::kInt8}) {
    state.sequence.caches = std::make_shared<KvCaches>(KvSpec{kind, 1, rows});
    std::vector<double> got;
    for (int64_t i = 0; i < rows; ++i) {
      state.sequence.first = i;
      for (const double y :
           (*module)(Var(x.reshape({rows, x.cols()}).row_slice(i, i + 1).reshape({1, 1, x.cols()}))).value().elements())
        got.push_back(y);
    }
    const double unit = kind == KvKind::kFp32 ? 0 : kind == KvKind::kBf16 ? 0x1p-8 : 0.5 / 127 + 0x1p-11;
    const double largest = 2, off_by = unit * largest;
    const double score = dim * largest * off_by / std::sqrt(static_cast<double>(dim));
    const double bound = off_by + (std::exp(2 * score) - 1) * largest;
    double most = 0, sum = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::fabs(got[i] - exact[i]));
      sum += std::fabs(got[i] - exact[i]);
    }
    INFO(kv_kind_name(kind) << ": " << most << " of " << bound);
    CHECK(most <= bound);
    CHECK((most > 0) == (kind != KvKind::kFp32));
    CHECK(sum / static_cast<double>(got.size()) <= off_by);
  }
}
