// Flips and reversals of packed codes. 64 codes of b bits are b whole words: equal words are skipped, and in the others
// only the codes that differ are examined.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <numeric>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/run/quant_monitor.h"

namespace bitgrad {
namespace {

constexpr int64_t kBlockCodes = 64;  // codes
constexpr int64_t kGrain = 131072;   // codes per work item

int64_t blocks_of_row(const Tensor& t) { return (t.cols() + kBlockCodes - 1) / kBlockCodes; }

void check(std::string_view where, const Tensor& before, const Tensor& now) {
  for (const Tensor* t : {&before, &now})
    require(t->defined() && t->dtype().is_code() && t->layout() == layouts::canonical, where,
            "needs canonical codes, got ", *t);
  require(before.dtype() == now.dtype() && before.shape() == now.shape(), where, "codes of one dtype and shape: got ",
          now, ", expected ", before);
}

const uint8_t* row_of(const Tensor& t, int64_t row) { return static_cast<const uint8_t*>(t.data()) + row * t.stride(); }

// Bit i is set if code i of the block differs. `n` codes of `bits` bits; bytes after them do not count.
uint64_t changed_codes(const uint8_t* a, const uint8_t* b, int bits, int64_t n) {
  uint64_t changed = 0;
  const int64_t total = n * bits;
  for (int64_t first = 0; first < total; first += 64) {
    uint64_t x, y;
    std::memcpy(&x, a + first / 8, 8);
    std::memcpy(&y, b + first / 8, 8);
    uint64_t differ = x ^ y;
    if (differ == 0) continue;
    if (total - first < 64) differ &= (uint64_t{1} << (total - first)) - 1;
    if (bits == 1) return differ;
    for (; differ != 0; differ &= differ - 1) changed |= uint64_t{1} << ((first + std::countr_zero(differ)) / bits);
  }
  return changed;
}

// Calls block(row, index of the block in its row, changed codes) for each block with changes. Rows run in parallel.
template <typename Block>
void for_changed_blocks(const Tensor& before, const Tensor& now, Block&& block) {
  const int64_t blocks = blocks_of_row(now), bits = now.dtype().bits();
  parallel_ranges(
      now.rows(), std::max<int64_t>(kGrain / std::max<int64_t>(now.cols(), 1), 1), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (int64_t b = 0; b < blocks; ++b) {
            const int64_t n = std::min(kBlockCodes, now.cols() - b * kBlockCodes), at = b * kBlockCodes * bits / 8;
            const uint64_t changed =
                changed_codes(row_of(before, r) + at, row_of(now, r) + at, static_cast<int>(bits), n);
            if (changed != 0) block(r, b, changed);
          }
      });
}

// The rank of each raw code in the order of code values.
std::array<uint8_t, 256> ranks(DType dtype) {
  const float* values = code_values(dtype);
  std::array<int, 256> order;
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + (1 << dtype.bits());
  std::stable_sort(order.begin(), end, [&](int a, int b) { return values[a] < values[b]; });
  std::array<uint8_t, 256> rank{};
  for (auto i = order.begin(); i != end; ++i) rank[static_cast<size_t>(*i)] = static_cast<uint8_t>(i - order.begin());
  return rank;
}

}  // namespace

int64_t count_flips(const Tensor& codes_before, const Tensor& codes_now) {
  check("count_flips", codes_before, codes_now);
  const DeviceGuard cpu(Device::cpu());
  const Tensor before = codes_before.without_quant().on_host(), now = codes_now.without_quant().on_host();
  std::atomic<int64_t> flips = 0;
  for_changed_blocks(before, now, [&](int64_t, int64_t, uint64_t changed) {
    flips.fetch_add(std::popcount(changed), std::memory_order_relaxed);
  });
  return flips;
}

CodeWatch::CodeWatch(const Tensor& codes) {
  check("CodeWatch", codes, codes);
  const DeviceGuard cpu(Device::cpu());
  last_ = codes.without_quant().on_host().clone(MemoryKind::kWorkspace);
  state_ = Tensor::zeros({codes.rows() * blocks_of_row(codes), 3}, dtypes::int64, MemoryKind::kWorkspace);
}

void CodeWatch::observe(const Tensor& watched) {
  check("CodeWatch", last_, watched);
  const DeviceGuard cpu(Device::cpu());
  const Tensor codes = watched.without_quant().on_host();
  const int bits = codes.dtype().bits();
  const std::array<uint8_t, 256> rank = ranks(codes.dtype());
  std::atomic<int64_t> flips = 0, reversals = 0, reversed = 0;
  for_changed_blocks(last_, codes, [&](int64_t r, int64_t b, uint64_t changed) {
    const uint8_t *now = row_of(codes, r), *before = row_of(last_, r);
    uint64_t up = 0;
    for (uint64_t left = changed; left != 0; left &= left - 1) {
      const int i = std::countr_zero(left);
      const int64_t at = b * kBlockCodes + i;
      if (rank[load_raw(now, at, bits)] > rank[load_raw(before, at, bits)]) up |= uint64_t{1} << i;
    }
    auto* state = reinterpret_cast<uint64_t*>(state_.as<int64_t>()) + (r * blocks_of_row(codes) + b) * 3;
    const uint64_t back = changed & state[0] & (up ^ state[1]);
    flips.fetch_add(std::popcount(changed), std::memory_order_relaxed);
    reversals.fetch_add(std::popcount(back), std::memory_order_relaxed);
    reversed.fetch_add(std::popcount(back & ~state[2]), std::memory_order_relaxed);
    state[0] |= changed;
    state[1] = (state[1] & ~changed) | up;
    state[2] |= back;
  });
  flips_ += flips;
  reversals_ += reversals;
  reversed_ += reversed;
  ++observations_;
  last_.copy_from(codes.without_quant());
}

}  // namespace bitgrad
