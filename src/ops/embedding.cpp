// y[r, c*d .. c*d+d-1] = w[ids[r,c], :];  gw[i,:] = sum of gy[r, c*d .. c*d+d-1] over the (r,c) with ids[r,c] = i.
// flat: y is [n, t*d], else [n, t, d], with the same elements in the same order.
// The table look-up of Bengio, Ducharme, Vincent, Jauvin 2003 (JMLR 3), section 2. docs/numerics.md sections 4 and 5.
//
// Only rows that are read are dequantized. The gradient is computed row by row of the table, with positions in
// ascending order, so that threads can share the rows.
#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <utility>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "kernels/quantize.h"
#include "ops/common.h"
#include "ops/map/embedding.h"

namespace bitgrad {
namespace {

constexpr std::string_view kEmbedding = "embedding";
constexpr int64_t kWork = 32768;  // approximate number of elements per parallel chunk

int64_t grain_of(int64_t items, int64_t numbers) {
  return std::max<int64_t>(1, kWork * std::max<int64_t>(items, 1) / std::max<int64_t>(numbers, 1));
}

class Ids {
 public:
  explicit Ids(const Tensor& t)
      : data_(static_cast<const char*>(t.data())),
        stride_(t.stride()),
        cols_(t.cols()),
        numel_(t.numel()),
        wide_(t.dtype() == dtypes::int64) {}
  // The id at flat position r * cols + c.
  int64_t operator[](int64_t position) const {
    const char* row = data_ + position / cols_ * stride_;
    const int64_t c = position % cols_;
    return wide_ ? reinterpret_cast<const int64_t*>(row)[c] : reinterpret_cast<const int32_t*>(row)[c];
  }
  int64_t size() const { return numel_; }

 private:
  const char* data_;
  int64_t stride_, cols_, numel_;
  bool wide_;
};

void check_embedding(const Tensor& ids, const Tensor& w) {
  require(ids.dtype() == dtypes::int32 || ids.dtype() == dtypes::int64, kEmbedding, "ids must be int32 or int64, got ",
          ids, ". Pass indices of the table's rows, not values.");
  require(ids.shape().rank() == 2 && !ids.quant(), kEmbedding, "ids must be a matrix [n,t] without scales, got ", ids);
  require(w.shape().rank() == 2, kEmbedding, "w must be a matrix [v,d], got ", w);
  const bool number = (w.dtype() == dtypes::fp32 || w.dtype() == dtypes::fp64) && !w.quant();
  require((number || w.dtype().is_code()) && w.layout() == layouts::canonical, kEmbedding,
          "w must be fp32, fp64 or codes of at most 8 bits in layout canonical, got ", w, " in layout ", w.layout());
}

void check_ids(const Tensor& ids, const Shape& table, DType dtype) {
  const Ids at(ids);
  for (int64_t i = 0; i < at.size(); ++i)
    require(at[i] >= 0 && at[i] < table.rows(), kEmbedding, "id at row ", i / ids.cols(), ", column ", i % ids.cols(),
            ": got ", at[i], ", expected 0 .. ", table.rows() - 1, ", the rows of w ", table, ' ', dtype);
}

maps::IdsView view_of(const Tensor& ids) {
  return {static_cast<const char*>(ids.data()), ids.stride(), ids.cols(), ids.dtype() == dtypes::int64};
}

// The same check on a device; errors are reported when they are polled.
void flag_ids(const Tensor& ids, const Tensor& w) {
  const FlagWord flag;
  run_map(maps::FlagIds{view_of(ids), w.rows(), flag.word()}, ids.numel());
  flag.check([ids, table = w.shape(), dtype = w.dtype()] {
    check_ids(ids.on_host(), table, dtype);
    fail(kEmbedding, "an id was not in 0 .. ", table.rows() - 1, ", the rows of w ", table, ' ', dtype);
  });
}

// Dequantizes row `id` to y [1, d].
void read_row(const Tensor& w, const ScaleMap& map, int64_t id, float* y) {
  kernels::DequantizeArgs args;
  args.rows = 1;
  args.cols = args.ldy = w.cols();
  args.dtype = w.dtype();
  Tensor row;
  if (!w.present()) row = w.canonical_rows(id, id + 1, MemoryKind::kWorkspace);
  args.codes = row.defined() ? row.data() : static_cast<const char*>(w.data()) + id * w.stride();
  args.stride = w.stride();
  args.scale = map;
  const int64_t first = map.index(id, 0);
  if (map.scale != nullptr) args.scale.scale += first;
  if (map.zero != nullptr) args.scale.zero += first;
  if (map.offset != nullptr) args.scale.offset += first;
  args.y = y;
  kernels::dequantize(args);
}

// The flat positions at which each row of the table is used, ascending: those of row i are at[first[i]] ..
// at[first[i+1] - 1].
struct Positions {
  Tensor first, at;  // int64

  Positions(const Ids& ids, int64_t rows)
      : first(Tensor::zeros({rows + 1}, dtypes::int64, MemoryKind::kWorkspace)),
        at(Tensor::empty({ids.size()}, dtypes::int64, MemoryKind::kWorkspace)) {
    int64_t* count = first.as<int64_t>();
    for (int64_t p = 0; p < ids.size(); ++p) ++count[ids[p]];
    int64_t sum = 0;
    for (int64_t i = 0; i <= rows; ++i) sum += std::exchange(count[i], sum);
    for (int64_t p = 0; p < ids.size(); ++p) at.as<int64_t>()[count[ids[p]]++] = p;
    for (int64_t i = rows; i > 0; --i) count[i] = count[i - 1];
    count[0] = 0;
  }
  std::span<const int64_t> of(int64_t row) const {
    const int64_t* f = first.as<int64_t>() + row;
    return {at.as<int64_t>() + f[0], static_cast<size_t>(f[1] - f[0])};
  }
};

// One row of the gradient: starts at +0 and adds the parts of gy in order.
template <typename T>
void sum_parts(const T* gy, std::span<const int64_t> positions, int64_t d, T* out) {
  std::fill_n(out, d, T{0});
  for (const int64_t p : positions) {
    const T* part = gy + p * d;
    for (int64_t j = 0; j < d; ++j) out[j] += part[j];
  }
}

template <typename T>
void add_row(const T* row, int64_t d, T* out) {
  for (int64_t j = 0; j < d; ++j) out[j] += row[j];
}

// Writes row r to a bf16 target, rounded once.
void round_row(const GradTarget& target, int64_t r, const float* row, int64_t d) {
  uint16_t* out = target.out.as<uint16_t>() + r * d;
  for (int64_t j = 0; j < d; ++j) {
    const float sum = target.accumulate ? bf16_to_float(out[j]) + row[j] : row[j];
    out[j] = target.sr != nullptr ? bf16_from_float_stochastic(sum, target.sr->bits16(static_cast<uint64_t>(r * d + j)))
                                  : bf16_from_float(sum);
  }
}

template <typename T>
void gradient_into(const Positions& positions, const Tensor& gy, int64_t grain, const GradTarget& target) {
  const int64_t d = target.out.cols();
  const bool narrow = target.out.dtype() == dtypes::bf16;
  parallel_ranges(target.out.rows(), grain, [&](int64_t begin, int64_t end) {
    const Tensor one = Tensor::empty({d}, gy.dtype(), MemoryKind::kWorkspace);
    for (int64_t r = begin; r < end; ++r) {
      const std::span<const int64_t> parts = positions.of(r);
      if (parts.empty() && target.accumulate) continue;
      const bool direct = !narrow && !target.accumulate;
      T* row = direct ? target.out.as<T>() + r * d : one.as<T>();
      sum_parts(gy.as<T>(), parts, d, row);
      if constexpr (std::is_same_v<T, float>)
        if (narrow) round_row(target, r, row, d);
      if (!narrow && !direct) add_row(row, d, target.out.as<T>() + r * d);
    }
  });
}

void gradient_rows(const Positions& positions, const Tensor& gy, const Shape& shape, GradRows& rows) {
  parallel_ranges(shape.rows(), rows.block_rows(), [&](int64_t begin, int64_t end) {
    const int64_t d = shape.cols();
    const Tensor block = Tensor::empty({end - begin, d}, dtypes::fp32, MemoryKind::kWorkspace);
    for (int64_t r = begin; r < end; ++r)
      sum_parts(gy.as<float>(), positions.of(r), d, block.as<float>() + (r - begin) * d);
    rows.consume(begin, block);
  });
}

// ---- devices other than the CPU: the same values, with all work in kernels.
// Rows are gathered as stored, codes and scales, and dequantized together. For the gradient, positions are sorted by
// row (bitonic sort: the keys of rows are all distinct; invalid keys and padding are ~0 and sort last, so the result is
// unique), and each element of the table sums its parts.

using Word = maps::GatherRows::Word;

// Gathers rows of `bytes` by id, from a table in which row r uses row r / group of `in`.
void gather(const Tensor& ids, int64_t table_rows, int64_t group, const void* in, int64_t step_bytes, int64_t bytes,
            void* out) {
  const int64_t words = bytes / 4;
  run_map(maps::GatherRows{view_of(ids), table_rows, group, static_cast<const Word*>(in), step_bytes / 4, words,
                           static_cast<Word*>(out)},
          ids.numel() * words);
}

// The scales of the gathered rows [count, d].
class GatheredScales {
 public:
  GatheredScales(const Tensor& ids, const Tensor& w) : map_(w.scale_map()) {
    const ScaleMap table = map_;
    if (table.row_step == 0 || table.trivial()) return;
    const int64_t across = table.col_step == 0 ? 1 : (std::max<int64_t>(w.cols(), 1) - 1) / table.col_group + 1;
    map_.row_group = 1;
    map_.row_step = across;
    take(ids, w.rows(), table, table.scale, across, dtypes::fp32, scale_);
    take(ids, w.rows(), table, table.zero, across, dtypes::int32, zero_);
    take(ids, w.rows(), table, table.offset, across, dtypes::fp32, offset_);
    if (scale_.defined()) map_.scale = scale_.as<float>();
    if (zero_.defined()) map_.zero = zero_.as<int32_t>();
    if (offset_.defined()) map_.offset = offset_.as<float>();
  }
  const ScaleMap& map() const { return map_; }

 private:
  static void take(const Tensor& ids, int64_t rows, const ScaleMap& table, const void* in, int64_t across, DType dtype,
                   Tensor& out) {
    if (in == nullptr) return;
    out = Tensor::empty({ids.numel() * across}, dtype, MemoryKind::kWorkspace);
    gather(ids, rows, table.row_group, in, table.row_step * 4, across * 4, out.data());
  }
  ScaleMap map_;
  Tensor scale_, zero_, offset_;
};

// The flat positions of ids, sorted by table row, then by position; keys without a row come last.
Tensor sorted_keys(const Tensor& ids, int64_t rows) {
  const int64_t count = ids.numel();
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  require(count < kMost && rows < kMost, "embedding", "ids ", ids, " and a table of ", rows,
          " rows are too many for a device: expected fewer than 2^32 of each");
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(count, 1))));
  Tensor keys = Tensor::empty({padded}, dtypes::int64, MemoryKind::kWorkspace);
  auto* const k = static_cast<uint64_t*>(keys.data());
  run_map(maps::IdKeys{view_of(ids), count, rows, k}, padded);
  for (int64_t run = 2; run <= padded; run *= 2)
    for (int64_t distance = run / 2; distance > 0; distance /= 2) run_map(maps::SortStep{k, distance, run}, padded / 2);
  return keys;
}

// y [n, t*d] fp32: the dequantized rows of w selected by ids [n, t]; zeros for ids out of range.
void gather_rows(const Tensor& ids, const Tensor& w, const Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t count = ids.numel(), d = w.cols();
  if (w.dtype() == dtypes::fp32) return gather(ids, w.rows(), 1, w.data(), w.stride(), d * 4, y.data());
  const Tensor codes = Tensor::empty({count, d}, w.dtype(), MemoryKind::kWorkspace);
  gather(ids, w.rows(), 1, w.data(), w.stride(), codes.stride(), codes.data());
  const GatheredScales scales(ids, w);
  kernels::DequantizeArgs args;
  args.rows = count;
  args.cols = args.ldy = d;
  args.dtype = w.dtype();
  args.codes = codes.data();
  args.stride = codes.stride();
  args.scale = scales.map();
  args.y = y.as<float>();
  kernels::dequantize(args);
}

// The gradient of the table [v, d]: writes the sum of each row's parts of gy [n, t*d] fp32 to target.out.
void scatter_rows(const Tensor& ids, const Tensor& gy, const GradTarget& target) {
  const int64_t rows = target.out.rows(), d = target.out.cols();
  if (target.out.numel() == 0) return;
  const Tensor keys = sorted_keys(ids, rows), first = Tensor::empty({rows + 1}, dtypes::int64, MemoryKind::kWorkspace);
  const auto* const k = static_cast<const uint64_t*>(keys.data());
  run_map(maps::FirstOfRow{k, keys.numel(), first.as<int64_t>()}, rows + 1);
  const bool narrow = target.out.dtype() == dtypes::bf16;
  run_map(maps::EmbeddingGradient{k, first.as<int64_t>(), gy.as<float>(), d, narrow ? nullptr : target.out.as<float>(),
                                  narrow ? target.out.as<uint16_t>() : nullptr, target.accumulate, target.sr != nullptr,
                                  target.sr ? *target.sr : RandomStream{}},
          rows * d);
}

// ---- the op

struct Embedding {
  static constexpr std::string_view kName = kEmbedding;
  struct Saved {
    Tensor ids;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, bool flat, DType dtype) {
    const Tensor &ids = in[0], &w = in[1];
    check_embedding(ids, w);
    require_result(kName, dtype);
    const bool on_host = current_device().is_cpu();
    if (on_host) check_ids(ids, w.shape(), w.dtype());
    const int64_t d = w.cols();
    require(ids.cols() == 0 || d <= std::numeric_limits<int64_t>::max() / ids.cols(), kEmbedding,
            "a row of the result has ", ids.cols(), " x ", d, " values, more than int64 can count");
    const bool f64 = w.dtype() == dtypes::fp64;
    const Shape shape = flat ? Shape{ids.rows(), ids.cols() * d} : Shape{ids.rows(), ids.cols(), d};
    const Tensor y = wide_result(shape, f64 ? dtypes::fp64 : dtype);
    s.ids = keep(ids);
    if (!on_host) {
      flag_ids(ids, w);
      gather_rows(ids, w, y);
      return narrowed(y, dtype);
    }
    const Ids at(ids);
    const ScaleMap map = w.scale_map();
    parallel_ranges(at.size(), grain_of(at.size(), y.numel()), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        if (f64)
          std::copy_n(reinterpret_cast<const double*>(static_cast<const char*>(w.data()) + at[p] * w.stride()), d,
                      y.as<double>() + p * d);
        else
          read_row(w, map, at[p], y.as<float>() + p * d);
      }
    });
    return f64 ? y : narrowed(y, dtype);
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor wide_gy = wide(gy[0]);
    const Shape shape = g[1].shape();
    if (!current_device().is_cpu()) {
      if (g[1].block_rows() > 0) decline_rows_on_device(g[1]);
      const GradTarget target = g[1].target();
      scatter_rows(s.ids, wide_gy, target);
      return g[1].commit();
    }
    const Positions positions(Ids(s.ids), shape.rows());
    if (shape.rows() > 0 && g[1].block_rows() > 0) {
      gradient_rows(positions, wide_gy, shape, *g[1].rows());
      return g[1].commit();
    }
    const int64_t grain = grain_of(shape.rows(), wide_gy.numel() + shape.numel());
    const GradTarget target = g[1].target();
    if (wide_gy.dtype() == dtypes::fp64)
      gradient_into<double>(positions, wide_gy, grain, target);
    else
      gradient_into<float>(positions, wide_gy, grain, target);
    g[1].commit();
  }
};

}  // namespace

Var embedding(const Var& ids, const Var& w, bool flat, DType dtype) {
  require(!ids.tracked(), kEmbedding, "ids ", ids.value(), " require a gradient: indices have none. Pass a constant.");
  return apply<Embedding>({ids, w}, flat, dtype);
}

}  // namespace bitgrad
