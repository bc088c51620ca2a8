// KV cache for generation: stores the keys and values of earlier rows of a sequence, so that each new token costs one
// row. docs/numerics.md section 10, "Cache of keys and values".
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "bitgrad/ops/attention.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Storage precision: fp32 is exact; bf16 rounds to nearest even; int8 has one fp16 scale per block of 32 elements of a
// row (ggml's Q8_0). 4, 2 and 1 + 1/16 bytes per element.
enum class KvKind : uint8_t { kFp32, kBf16, kInt8 };
std::string_view kv_kind_name(KvKind kind);  // "fp32", "bf16", "int8"

struct KvSpec {
  KvKind kind = KvKind::kFp32;
  int64_t samples = 1;    // parallel sequences
  int64_t positions = 0;  // largest number of rows per sequence
};

// The cache of one attention layer. Memory of kind kv_cache on the device that was current at construction. On the CPU
// it grows with the rows that are stored, in blocks of 64 and by at least a quarter; on other devices all of it exists
// from the beginning.
class KvCache {
 public:
  // `features` is the width of k, and of v: that of `heads` heads side by side, a divisor.
  KvCache(const KvSpec& spec, int64_t features, int64_t heads);

  // Writes rows first .. first + t - 1 from x [samples, t, c] (fp32, dense): columns begin .. begin + features - 1 are
  // k, the next `features` columns are v. int8 only: sets kFlagNonFinite in `flag` for NaN, Inf and blocks whose scale
  // exceeds fp16; fp32 and bf16 do not use `flag`. Throws Error for other shapes and for rows beyond spec.positions. An
  // Error leaves the rows as they were.
  void store(const Tensor& x, int64_t begin, int64_t first, uint32_t* flag);
  // Returns [samples, s, features] fp32, s >= rows, whose first `rows` rows are valid: the cache itself for fp32,
  // otherwise a dequantized copy in workspace memory. A cache of fp32 or bf16 on the CPU is held as attention reads it,
  // in blocks of 64 rows of its dtype, so that what one head reads is in one piece: keys transposed, [samples, ceil(s /
  // 64), features, 64], values head by head, [samples, ceil(s / 64), heads, 64, features / heads]. It is returned as it
  // is. Throws Error if rows > spec.positions,
  // or beyond those for which store has made room.
  Tensor keys(int64_t rows) const { return read(k_, rows); }
  Tensor values(int64_t rows) const { return read(v_, rows); }
  int64_t bytes() const;  // now

 private:
  struct Side {
    Tensor numbers, scales;  // of `held_` rows; scales: int8 only, [samples, rows, blocks]
  };
  void make_room(int64_t rows);
  Side resized(const Side& side, int64_t rows) const;
  void write(const Side& side, const Tensor& x, int64_t begin, int64_t first, uint32_t* flag) const;
  void write_blocks(const Tensor& x, int64_t begin, int64_t first) const;
  Tensor read(const Side& side, int64_t rows) const;

  KvSpec spec_;
  int64_t features_, heads_;
  bool blocks_;       // k and v are in blocks
  int64_t held_ = 0;  // rows per sequence for which there is memory
  Side k_, v_;
};

// The caches of all attention layers of a model; each layer creates its own on first use.
class KvCaches {
 public:
  // Throws Error if samples or positions is below 1.
  explicit KvCaches(const KvSpec& spec);
  const KvSpec& spec() const { return spec_; }
  // `layer` is used as a key only (the layer's address). Throws Error if `features` or `heads` differs from the first
  // call.
  KvCache& of(const void* layer, int64_t features, int64_t heads);
  // The table of rope (rope_table) on the current device for positions before `end`, which layers with the same options
  // share. On the CPU it grows with the text, by half at least; on other devices it has all positions from the
  // beginning, as KvCache does.
  Tensor angles(const RopeOptions& rope, int64_t end);
  // Total over the layers that have run so far, without angles.
  int64_t bytes() const;

 private:
  struct Entry {
    int64_t features, heads;
    KvCache cache;
  };
  struct Angles {
    RopeOptions rope;
    Tensor table;
  };
  KvSpec spec_;
  std::map<const void*, Entry> caches_;
  std::vector<Angles> angles_;
};

}  // namespace bitgrad
