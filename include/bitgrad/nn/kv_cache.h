// Keys and values of the rows that a sequence has so far, kept for the rows that follow: generation computes one row
// instead of all. docs/numerics.md section 10, "Cache of keys and values".
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// How numbers are held. fp32 changes none; bf16 rounds to nearest even; int8 has an fp16 scale for each 32 numbers of a
// row (ggml's Q8_0): 4, 2 and 1 + 1/16 bytes a number.
enum class KvKind : uint8_t { kFp32, kBf16, kInt8 };
std::string_view kv_kind_name(KvKind kind);  // fp32, bf16, int8

struct KvSpec {
  KvKind kind = KvKind::kFp32;
  int64_t samples = 1;    // sequences side by side
  int64_t positions = 0;  // rows of each
};

// Of one attention layer. Memory of kind kv_cache on the device that was current when it was made.
class KvCache {
 public:
  // features: of k, and of v (heads that they have * d).
  KvCache(const KvSpec& spec, int64_t features);

  // Rows first .. first + t - 1 become those of x [samples, t, c] fp32, dense: k of a row is at column `begin`, v
  // behind it. flag gets kFlagNonFinite for NaN and Inf, and for a block beyond fp16 (int8 alone). Throws Error for
  // rows beyond spec.positions.
  void store(const Tensor& x, int64_t begin, int64_t first, uint32_t* flag);
  // [samples, s, features] fp32 with the values of rows 0 .. rows - 1, s >= rows: of fp32 the cache itself, else a copy
  // in workspace memory.
  Tensor keys(int64_t rows) const { return read(k_, rows); }
  Tensor values(int64_t rows) const { return read(v_, rows); }
  int64_t bytes() const;

 private:
  struct Side {
    Tensor numbers, scales;  // scales: int8 alone, [samples, positions, blocks]
  };
  Side empty() const;
  void write(const Side& side, const Tensor& x, int64_t begin, int64_t first, uint32_t* flag) const;
  Tensor read(const Side& side, int64_t rows) const;

  KvSpec spec_;
  int64_t features_;
  Side k_, v_;
};

// Of all attention layers of a model: each makes its own when it first runs.
class KvCaches {
 public:
  // Throws Error for counts below 1.
  explicit KvCaches(const KvSpec& spec);
  const KvSpec& spec() const { return spec_; }
  // `layer` stands for the layer, by its address. Throws Error where it had another number of features before.
  KvCache& of(const void* layer, int64_t features);
  // Of the layers that have run.
  int64_t bytes() const;

 private:
  struct Entry {
    int64_t features;
    KvCache cache;
  };
  KvSpec spec_;
  std::map<const void*, Entry> caches_;
};

}  // namespace bitgrad
