#include "emulation/cuda/mma.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda/device/fragments.h"
#include "emulation/cuda/barrier.h"
#include "emulation/cuda/emulation.h"

namespace bitgrad::cuda::emulation {
namespace {

template <typename Sum>
struct MmaSlot {
  MmaKind kind;
  Sum* d;
  const uint32_t *a, *b;
};

struct MmaTile {
  uint8_t a[mma::kRows][mma::kBytes], b[mma::kColumns][mma::kBytes];

  template <typename Sum>
  explicit MmaTile(const MmaSlot<Sum>* const* slots) {
    for (int lane = 0; lane < 32; ++lane) {
      const MmaSlot<Sum>* slot = slots[lane];
      for (int r = 0; r < mma::kRegistersA; ++r)
        std::memcpy(&a[mma::a_row(lane, r)][mma::a_byte(lane, r)], &slot->a[r], 4);
      for (int r = 0; r < mma::kRegistersB; ++r)
        std::memcpy(&b[mma::b_column(lane, r)][mma::b_byte(lane, r)], &slot->b[r], 4);
    }
  }
};

template <typename A, typename B>
int dot_bytes(const uint8_t* a, const uint8_t* b) {
  int sum = 0;
  for (int k = 0; k < mma::kBytes; ++k) sum += static_cast<A>(a[k]) * static_cast<B>(b[k]);
  return sum;
}
int dot(MmaKind kind, const uint8_t* a, const uint8_t* b) {
  switch (kind) {
    case MmaKind::kS8S8:
      return dot_bytes<int8_t, int8_t>(a, b);
    case MmaKind::kS8U8:
      return dot_bytes<int8_t, uint8_t>(a, b);
    case MmaKind::kU8S8:
      return dot_bytes<uint8_t, int8_t>(a, b);
    case MmaKind::kU8U8:
      return dot_bytes<uint8_t, uint8_t>(a, b);
    case MmaKind::kBits:
    case MmaKind::kBf16:
      break;
  }
  int sum = 0;
  for (int k = 0; k < mma::kBytes; k += 8) {
    uint64_t x, y;
    std::memcpy(&x, a + k, 8);
    std::memcpy(&y, b + k, 8);
    sum += std::popcount(x & y);
  }
  return sum;
}

float bf16_at(const uint8_t* bytes) {
  uint16_t word;
  std::memcpy(&word, bytes, 2);
  return std::bit_cast<float>(uint32_t{word} << 16);
}
float add_products(float sum, const uint8_t* a, const uint8_t* b) {
  double exact = sum;
  for (int k = 0; k < mma::kBytes; k += 2) exact += static_cast<double>(bf16_at(a + k)) * bf16_at(b + k);
  return static_cast<float>(exact);
}
int add_products(int sum, MmaKind kind, const uint8_t* a, const uint8_t* b) {
  return static_cast<int>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(dot(kind, a, b)));
}

template <typename Sum>
void run_mma(void* const* slots, int) {
  const MmaSlot<Sum>* of_lane[32];
  for (int lane = 0; lane < 32; ++lane) {
    if (slots[lane] == nullptr) fail_thread("mma.sync was called by a warp that lacks lanes");
    of_lane[lane] = static_cast<const MmaSlot<Sum>*>(slots[lane]);
  }
  const MmaTile tile(of_lane);
  for (int lane = 0; lane < 32; ++lane) {
    const MmaSlot<Sum>* slot = of_lane[lane];
    for (int r = 0; r < mma::kRegistersD; ++r) {
      const uint8_t *a = tile.a[mma::d_row(lane, r)], *b = tile.b[mma::d_column(lane, r)];
      if constexpr (std::is_same_v<Sum, float>)
        slot->d[r] = add_products(slot->d[r], a, b);
      else
        slot->d[r] = add_products(slot->d[r], slot->kind, a, b);
    }
  }
}

struct LoadSlot {
  uint32_t* out;
  const void* row;
};
void run_load(void* const* slots, int) {
  const auto slot = [&](int lane) { return static_cast<const LoadSlot*>(slots[lane]); };
  for (int lane = 0; lane < 32; ++lane) {
    if (slots[lane] == nullptr) fail_thread("ldmatrix was called by a warp that lacks lanes");
    if (reinterpret_cast<uintptr_t>(slot(lane)->row) % 16 != 0) fail_thread("ldmatrix: a row is not on 16 bytes");
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto* row = static_cast<const uint8_t*>(slot(8 * i + lane / 4)->row);
      std::memcpy(&slot(lane)->out[i], row + lane % 4 * 4, 4);
    }
  }
}

struct StoreSlot {
  void* row;
  const uint32_t* words;
  bool transposed;
};
void run_store(void* const* slots, int) {
  const auto slot = [&](int lane) { return static_cast<const StoreSlot*>(slots[lane]); };
  for (int lane = 0; lane < 32; ++lane) {
    if (slots[lane] == nullptr) fail_thread("stmatrix was called by a warp that lacks lanes");
    const uint32_t begin = shared_address(slot(lane)->row);
    if (begin % 16 != 0 || begin + 16 > shared_end())
      fail_thread("stmatrix: a row is not on 16 bytes of shared memory");
    if (slot(lane)->transposed != slot(0)->transposed) fail_thread("stmatrix: lanes differ in .trans");
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      for (int half = 0; half < 2; ++half) {
        const auto element = static_cast<uint16_t>(slot(lane)->words[i] >> (16 * half));
        int row = lane / 4, column = lane % 4 * 2 + half;
        if (slot(lane)->transposed) std::swap(row, column);
        std::memcpy(static_cast<char*>(slot(8 * i + row)->row) + column * 2, &element, 2);
      }
    }
  }
}
uint32_t to_bf16(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
  return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

}  // namespace

uint32_t pack_bf16(float first, float second) { return to_bf16(first) | to_bf16(second) << 16; }

void store_matrices(void* row, const uint32_t (&words)[4], bool transposed) {
  StoreSlot slot{row, words, transposed};
  collective(32, &slot, run_store, "stmatrix");
}

void multiply(MmaKind kind, int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaSlot<int> slot{kind, d, a, b};
  collective(32, &slot, run_mma<int>, "mma.sync");
}
void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaSlot<float> slot{MmaKind::kBf16, d, a, b};
  collective(32, &slot, run_mma<float>, "mma.sync");
}
uint32_t multiply_add_bf16(uint32_t x, uint32_t y, uint32_t z) {
  const auto half = [](uint32_t word, int at) { return std::bit_cast<float>(word >> (16 * at) << 16); };
  const auto one = [&](int at) { return std::fma(half(x, at), half(y, at), half(z, at)); };
  return pack_bf16(one(0), one(1));
}

void load_matrices(uint32_t (&out)[4], const void* row) {
  LoadSlot slot{out, row};
  collective(32, &slot, run_load, "ldmatrix");
}

void AsyncCopies::Copy::land() const {
  std::memcpy(to, from, static_cast<size_t>(valid));
  std::memset(static_cast<uint8_t*>(to) + valid, 0, static_cast<size_t>(bytes - valid));
}

void AsyncCopies::add(int bytes, void* to, const void* from, int valid) {
  const auto unaligned = [&](const void* p) { return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes); };
  if (unaligned(to) != 0 || unaligned(from) != 0)
    fail_thread("cp.async: an address is not aligned to its " + std::to_string(bytes) + " bytes");
  if (valid < 0 || valid > bytes)
    fail_thread("cp.async: " + std::to_string(valid) + " valid bytes of " + std::to_string(bytes));
  const Copy copy{bytes, to, from, valid};
  if (random() % 2 == 0)
    copy.land();
  else
    open_.push_back(copy);
}

void AsyncCopies::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void AsyncCopies::land(size_t pending) {
  while (groups_.size() > pending) {
    for (const Copy& copy : groups_.front()) copy.land();
    groups_.erase(groups_.begin());
  }
}

}  // namespace bitgrad::cuda::emulation
