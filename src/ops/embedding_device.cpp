// Rows are gathered as stored, codes and scales, and dequantized together. For the gradient, positions are sorted by
// row (bitonic sort: the keys of rows are all distinct; invalid keys and padding are ~0 and sort last, so the result is
// unique), and each element of the table sums its parts.
#include "ops/embedding_device.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/quantize.h"
#include "ops/map/embedding.h"

namespace bitgrad::detail {
namespace {

using Word = maps::GatherRows::Word;

maps::IdsView view_of(const Tensor& ids) {
  return {static_cast<const char*>(ids.data()), ids.stride(), ids.cols(), ids.dtype() == dtypes::int64};
}

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

}  // namespace

void flag_ids(const Tensor& ids, int64_t rows, uint32_t* flags) {
  run_map(maps::FlagIds{view_of(ids), rows, flags}, ids.numel());
}

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

}  // namespace bitgrad::detail
