#include "bitgrad/nn/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "kernels/attention.h"
#include "nn/map/kv_cache.h"

namespace bitgrad {
namespace {

constexpr int64_t kGrain = kMapGrain / maps::kv::kBlock;

using kernels::kAttentionBlock;

constexpr std::string_view kWhere = "kv_cache";

DType dtype_of(KvKind kind) {
  return kind == KvKind::kInt8 ? dtypes::int8 : kind == KvKind::kBf16 ? dtypes::bf16 : dtypes::fp32;
}

}  // namespace

std::string_view kv_kind_name(KvKind kind) {
  static constexpr std::string_view kNames[] = {"fp32", "bf16", "int8"};
  return kNames[static_cast<size_t>(kind)];
}

KvCache::KvCache(const KvSpec& spec, int64_t features, int64_t heads)
    : spec_(spec),
      features_(features),
      heads_(heads),
      blocks_(spec.kind != KvKind::kInt8 && current_device().is_cpu()) {
  require(heads >= 1 && features % heads == 0, kWhere, "got ", features, " features of ", heads,
          " heads, expected a multiple");
  if (!current_device().is_cpu()) make_room(spec.positions);
}

// A side with room for `rows` rows, which begin with those of `side`.
KvCache::Side KvCache::resized(const Side& side, int64_t rows) const {
  // Memory for `blocks` of `width` numbers per sample, dense, whose first ones are those of `old`.
  const auto grown = [&](const Tensor& old, int64_t before, int64_t blocks, std::vector<int64_t> width, DType dtype) {
    std::vector<int64_t> dims{spec_.samples, blocks};
    dims.insert(dims.end(), width.begin(), width.end());
    Tensor out = Tensor::zeros(Shape(std::move(dims)), dtype, MemoryKind::kKvCache);
    if (!old.defined()) return out;
    const int64_t block = Shape(std::move(width)).numel() * dtype.bits() / 8;
    for (int64_t n = 0; n < spec_.samples; ++n)
      std::memcpy(static_cast<char*>(out.data()) + n * blocks * block,
                  static_cast<const char*>(old.data()) + n * before * block, static_cast<size_t>(before * block));
    return out;
  };
  Side out;
  if (blocks_) {
    const auto blocks = [](int64_t n) { return (n + kAttentionBlock - 1) / kAttentionBlock; };
    const std::vector<int64_t> keys{features_, kAttentionBlock}, values{heads_, kAttentionBlock, features_ / heads_};
    out.numbers = grown(side.numbers, blocks(held_), blocks(rows), &side == &k_ ? keys : values, dtype_of(spec_.kind));
    return out;
  }
  out.numbers = grown(side.numbers, held_, rows, {features_}, dtype_of(spec_.kind));
  if (spec_.kind == KvKind::kInt8)
    out.scales = grown(side.scales, held_, rows, {maps::kv::blocks_of(features_)}, dtypes::fp16);
  return out;
}

void KvCache::make_room(int64_t rows) {
  if (rows <= held_) return;
  const int64_t wanted = std::max(rows, held_ + held_ / 4);
  const int64_t room = std::min(spec_.positions, (wanted + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock);
  Side k = resized(k_, room), v = resized(v_, room);
  k_ = std::move(k);
  v_ = std::move(v);
  held_ = room;
}

void KvCache::store(const Tensor& x, int64_t begin, int64_t first, uint32_t* flag) {
  require(x.shape().rank() == 3 && x.shape()[0] == spec_.samples && x.dtype() == dtypes::fp32 && x.contiguous() &&
              begin >= 0 && begin + 2 * features_ <= x.cols(),
          kWhere, "rows must be [", spec_.samples, ",t,c] fp32 with k and v of ", features_, " features at column ",
          begin, ", got ", x);
  require(first >= 0 && first + x.shape()[1] <= spec_.positions, kWhere, "rows at positions ", first, " to ",
          first + x.shape()[1] - 1, ": got a cache of ", spec_.positions, " positions");
  make_room(std::max<int64_t>(1, first + x.shape()[1]));
  if (x.shape()[1] == 0) return;
  if (blocks_) return write_blocks(x, begin, first);
  write(k_, x, begin, first, flag);
  write(v_, x, begin + features_, first, flag);
}

void KvCache::write_blocks(const Tensor& x, int64_t begin, int64_t first) const {
  const int64_t blocks = k_.numbers.shape()[1], pieces = spec_.samples * maps::kv::blocks_of(features_);
  const auto rows = [&](int64_t at) {
    return maps::kv::Rows{x.as<float>() + at, x.cols(), x.shape()[1], held_, first, features_};
  };
  const bool narrow = spec_.kind == KvKind::kBf16;
  const auto wide_of = [&](const Side& side) { return narrow ? nullptr : side.numbers.as<float>(); };
  const auto narrow_of = [&](const Side& side) { return narrow ? side.numbers.as<uint16_t>() : nullptr; };
  run_map(maps::KvStoreColumns{rows(begin), blocks, wide_of(k_), narrow_of(k_)}, pieces, 1);
  run_map(maps::KvStoreHeads{rows(begin + features_), blocks, features_ / heads_, wide_of(v_), narrow_of(v_)},
          pieces * x.shape()[1], kGrain);
}

void KvCache::write(const Side& side, const Tensor& x, int64_t begin, int64_t first, uint32_t* flag) const {
  const maps::kv::Rows rows{x.as<float>() + begin, x.cols(), x.shape()[1], held_, first, features_};
  const int64_t pieces = spec_.samples * x.shape()[1] * maps::kv::blocks_of(features_);
  if (spec_.kind == KvKind::kFp32)
    run_map(maps::KvStoreFp32{rows, side.numbers.as<float>()}, pieces, kGrain);
  else if (spec_.kind == KvKind::kBf16)
    run_map(maps::KvStoreBf16{rows, side.numbers.as<uint16_t>()}, pieces, kGrain);
  else
    run_map(maps::KvStoreInt8{rows, side.numbers.as<int8_t>(), side.scales.as<uint16_t>(), flag}, pieces, kGrain);
}

Tensor KvCache::read(const Side& side, int64_t rows) const {
  require(rows >= 0 && rows <= spec_.positions, kWhere, "rows: got ", rows, " of ", spec_.positions);
  require(held_ > 0 && rows <= held_, kWhere, "rows: got ", rows, ", but only ", held_,
          " have memory: no later row was stored");
  if (blocks_ || spec_.kind == KvKind::kFp32) return side.numbers;
  Tensor out = Tensor::empty({spec_.samples, rows, features_}, dtypes::fp32, MemoryKind::kWorkspace);
  const int64_t pieces = spec_.samples * rows * maps::kv::blocks_of(features_);
  const maps::kv::Copied copied{rows, held_, features_, out.as<float>()};
  if (spec_.kind == KvKind::kBf16)
    run_map(maps::KvLoadBf16{copied, side.numbers.as<uint16_t>()}, pieces, kGrain);
  else
    run_map(maps::KvLoadInt8{copied, side.numbers.as<int8_t>(), side.scales.as<uint16_t>()}, pieces, kGrain);
  return out;
}

int64_t KvCache::bytes() const {
  int64_t sum = 0;
  for (const Side* side : {&k_, &v_}) sum += side->numbers.bytes() + side->scales.bytes();
  return sum;
}

KvCaches::KvCaches(const KvSpec& spec) : spec_(spec) {
  require(spec.samples >= 1 && spec.positions >= 1, kWhere, "got ", spec.samples, " samples of ", spec.positions,
          " positions, expected at least 1 of each");
}

KvCache& KvCaches::of(const void* layer, int64_t features, int64_t heads) {
  auto at = caches_.find(layer);
  if (at == caches_.end()) at = caches_.emplace(layer, Entry{features, heads, KvCache(spec_, features, heads)}).first;
  const Entry& held = at->second;
  require(held.features == features && held.heads == heads, kWhere, "the layer had ", held.features,
          " features of k in ", held.heads, " heads, got ", features, " in ", heads);
  return at->second.cache;
}

Tensor KvCaches::angles(const RopeOptions& rope, int64_t end) {
  constexpr int64_t kFewest = 256;
  auto at = std::find_if(angles_.begin(), angles_.end(), [&](const Angles& a) { return a.rope == rope; });
  if (at == angles_.end()) at = angles_.insert(at, {rope, {}});
  Tensor& table = at->table;
  const int64_t all = std::max(end, spec_.positions), needed = current_device().is_cpu() ? end : all;
  if (!table.defined() || table.rows() < needed || table.device() != current_device())
    table = rope_table(std::min(all, std::max({needed, kFewest, end + end / 2})), rope);
  return table;
}

int64_t KvCaches::bytes() const {
  int64_t sum = 0;
  for (const auto& [layer, entry] : caches_) sum += entry.cache.bytes();
  return sum;
}

}  // namespace bitgrad
