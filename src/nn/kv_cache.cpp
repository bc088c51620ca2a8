#include "bitgrad/nn/kv_cache.h"

#include <algorithm>

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

KvCache::KvCache(const KvSpec& spec, int64_t features)
    : spec_(spec),
      features_(features),
      k_(empty(spec.kind == KvKind::kFp32 && current_device().is_cpu())),
      v_(empty(false)) {}

KvCache::Side KvCache::empty(bool columns) const {
  const auto make = [&](int64_t columns, DType dtype) {
    return Tensor::zeros({spec_.samples, spec_.positions, columns}, dtype, MemoryKind::kKvCache);
  };
  Side side;
  side.columns = columns;
  if (columns) {
    const int64_t blocks = (spec_.positions + kAttentionBlock - 1) / kAttentionBlock;
    side.numbers =
        Tensor::zeros({spec_.samples, blocks, features_, kAttentionBlock}, dtypes::fp32, MemoryKind::kKvCache);
    return side;
  }
  side.numbers = make(features_, dtype_of(spec_.kind));
  if (spec_.kind == KvKind::kInt8) side.scales = make(maps::kv::blocks_of(features_), dtypes::fp16);
  return side;
}

void KvCache::store(const Tensor& x, int64_t begin, int64_t first, uint32_t* flag) {
  require(x.shape().rank() == 3 && x.shape()[0] == spec_.samples && x.dtype() == dtypes::fp32 && x.contiguous() &&
              begin >= 0 && begin + 2 * features_ <= x.cols(),
          kWhere, "rows must be [", spec_.samples, ",t,c] fp32 with k and v of ", features_, " features at column ",
          begin, ", got ", x);
  require(first >= 0 && first + x.shape()[1] <= spec_.positions, kWhere, "rows at positions ", first, " to ",
          first + x.shape()[1] - 1, ": got a cache of ", spec_.positions, " positions");
  write(k_, x, begin, first, flag);
  write(v_, x, begin + features_, first, flag);
}

void KvCache::write(const Side& side, const Tensor& x, int64_t begin, int64_t first, uint32_t* flag) const {
  const maps::kv::Rows rows{x.as<float>() + begin, x.cols(), x.shape()[1], spec_.positions, first, features_};
  const int64_t pieces = spec_.samples * x.shape()[1] * maps::kv::blocks_of(features_);
  if (side.columns)
    run_map(maps::KvStoreColumns{rows, side.numbers.shape()[1], side.numbers.as<float>()},
            spec_.samples * maps::kv::blocks_of(features_), 1);
  else if (spec_.kind == KvKind::kFp32)
    run_map(maps::KvStoreFp32{rows, side.numbers.as<float>()}, pieces, kGrain);
  else if (spec_.kind == KvKind::kBf16)
    run_map(maps::KvStoreBf16{rows, side.numbers.as<uint16_t>()}, pieces, kGrain);
  else
    run_map(maps::KvStoreInt8{rows, side.numbers.as<int8_t>(), side.scales.as<uint16_t>(), flag}, pieces, kGrain);
}

Tensor KvCache::read(const Side& side, int64_t rows) const {
  require(rows >= 0 && rows <= spec_.positions, kWhere, "rows: got ", rows, " of ", spec_.positions);
  if (spec_.kind == KvKind::kFp32) return side.numbers;
  Tensor out = Tensor::empty({spec_.samples, rows, features_}, dtypes::fp32, MemoryKind::kWorkspace);
  const int64_t pieces = spec_.samples * rows * maps::kv::blocks_of(features_);
  const maps::kv::Copied copied{rows, spec_.positions, features_, out.as<float>()};
  if (spec_.kind == KvKind::kBf16)
    run_map(maps::KvLoadBf16{copied, side.numbers.as<uint16_t>()}, pieces, kGrain);
  else
    run_map(maps::KvLoadInt8{copied, side.numbers.as<int8_t>(), side.scales.as<uint16_t>()}, pieces, kGrain);
  return out;
}

int64_t KvCache::bytes() const {
  int64_t sum = 0;
  for (const Side* side : {&k_, &v_})
    sum += side->numbers.bytes() + (side->scales.defined() ? side->scales.bytes() : 0);
  return sum;
}

KvCaches::KvCaches(const KvSpec& spec) : spec_(spec) {
  require(spec.samples >= 1 && spec.positions >= 1, kWhere, "got ", spec.samples, " samples of ", spec.positions,
          " positions, expected at least 1 of each");
}

KvCache& KvCaches::of(const void* layer, int64_t features) {
  auto at = caches_.find(layer);
  if (at == caches_.end()) at = caches_.emplace(layer, Entry{features, KvCache(spec_, features)}).first;
  require(at->second.features == features, kWhere, "the layer had ", at->second.features, " features of k, got ",
          features);
  return at->second.cache;
}

int64_t KvCaches::bytes() const {
  int64_t sum = 0;
  for (const auto& [layer, entry] : caches_) sum += entry.cache.bytes();
  return sum;
}

}  // namespace bitgrad
