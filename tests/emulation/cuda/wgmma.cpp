#include "emulation/cuda/wgmma.h"

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "cuda/device/fragments.h"
#include "cuda/device/wgmma.h"
#include "emulation/cuda/emulation.h"

namespace bitgrad::cuda::emulation {
namespace {

constexpr int kRows = 64;

// The arguments of one thread.
struct Call {
  int type, n;
  int32_t* d;
  uint64_t a;
  const uint32_t* a_registers;
  uint64_t b;
  bool accumulate;
};

// One product of the warpgroup. bytes: the rows of 32 bytes of A and then of B, after they were read.
struct Product {
  std::array<Call, kWarpgroup> calls;
  std::vector<uint8_t> bytes;
};
using Group = std::vector<Product>;

struct Warpgroup {
  Group open;
  std::deque<Group> committed;
  bool fenced = false;
};

struct State {
  int64_t serial = -1;
  std::map<int, Warpgroup> warpgroups;
};
thread_local State g_state;

Warpgroup& own() {
  if (g_state.serial != block_serial()) g_state = {block_serial(), {}};
  return g_state.warpgroups[cluster_rank() * 64 + thread_rank() / kWarpgroup];
}

void read_shared(uint64_t word, int rows, uint8_t* out) {
  const MatrixDescriptor d = decode(word);
  const char* base = static_cast<const char*>(shared_base(cluster_rank()));
  for (int r = 0; r < rows; ++r) {
    for (int b = 0; b < kStepBytes; ++b) {
      const uint32_t at = operand_address(d, r, b);
      if (at < kSharedBegin || at >= shared_end())
        fail_thread("a matrix descriptor of wgmma reaches past shared memory");
      out[r * kStepBytes + b] = static_cast<uint8_t>(base[at - kSharedBegin]);
    }
  }
}

void read_operands(Product& product) {
  if (!product.bytes.empty()) return;
  const Call& first = product.calls[0];
  product.bytes.resize(static_cast<size_t>(kRows + first.n) * kStepBytes);
  uint8_t* a = product.bytes.data();
  if (first.a_registers == nullptr) {
    read_shared(first.a, kRows, a);
  } else {
    for (int thread = 0; thread < kWarpgroup; ++thread) {
      for (int index = 0; index < 4; ++index) {
        for (int byte = 0; byte < 4; ++byte) {
          const TilePoint p = operand_point(thread, index, byte);
          a[p.row * kStepBytes + p.column] =
              static_cast<uint8_t>(product.calls[static_cast<size_t>(thread)].a_registers[index] >> (8 * byte));
        }
      }
    }
  }
  read_shared(first.b, first.n, a + kRows * kStepBytes);
}

int32_t dot_bytes(const int16_t* a, const int16_t* b) {
  int32_t sum = 0;
  for (int k = 0; k < kStepBytes; ++k) sum += a[k] * b[k];
  return sum;
}

int32_t dot_bits(const uint8_t* a, const uint8_t* b) {
  int32_t sum = 0;
  for (int k = 0; k < kStepBytes; k += 8) {
    uint64_t x, y;
    std::memcpy(&x, a + k, 8);
    std::memcpy(&y, b + k, 8);
    sum += std::popcount(x & y);
  }
  return sum;
}

std::vector<int16_t> widen(const uint8_t* bytes, int rows, bool is_signed) {
  std::vector<int16_t> out(static_cast<size_t>(rows) * kStepBytes);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = is_signed ? static_cast<int16_t>(static_cast<int8_t>(bytes[i])) : static_cast<int16_t>(bytes[i]);
  return out;
}

void run_product(Product& product) {
  read_operands(product);
  const Call& first = product.calls[0];
  const auto type = static_cast<WgmmaType>(first.type);
  const uint8_t *a = product.bytes.data(), *b = a + kRows * kStepBytes;
  std::vector<int32_t> sums(static_cast<size_t>(kRows) * static_cast<size_t>(first.n));
  if (type == WgmmaType::kB1) {
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < first.n; ++c)
        sums[static_cast<size_t>(r * first.n + c)] = dot_bits(a + r * kStepBytes, b + c * kStepBytes);
  } else {
    const std::vector<int16_t> wide_a = widen(a, kRows, type == WgmmaType::kS8S8 || type == WgmmaType::kS8U8);
    const std::vector<int16_t> wide_b = widen(b, first.n, type == WgmmaType::kS8S8 || type == WgmmaType::kU8S8);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < first.n; ++c)
        sums[static_cast<size_t>(r * first.n + c)] =
            dot_bytes(&wide_a[static_cast<size_t>(r * kStepBytes)], &wide_b[static_cast<size_t>(c * kStepBytes)]);
  }
  for (int thread = 0; thread < kWarpgroup; ++thread) {
    int32_t* d = product.calls[static_cast<size_t>(thread)].d;
    for (int i = 0; i < first.n / 2; ++i) {
      const TilePoint p = accumulator_point(thread, i);
      const uint32_t old = first.accumulate ? static_cast<uint32_t>(d[i]) : 0;
      d[i] = static_cast<int32_t>(old + static_cast<uint32_t>(sums[static_cast<size_t>(p.row * first.n + p.column)]));
    }
  }
}

void begin(void* const* slots, int threads) {
  Warpgroup& group = own();
  if (!group.fenced) fail_thread("wgmma without wgmma_fence since the last wait");
  Product product;
  for (int i = 0; i < threads; ++i) {
    if (slots[i] == nullptr) fail_thread("wgmma by less than a whole warpgroup");
    const Call& call = *static_cast<const Call*>(slots[i]);
    product.calls[static_cast<size_t>(i)] = call;
    const Call& first = product.calls[0];
    if (call.a != first.a || call.b != first.b || call.type != first.type || call.n != first.n ||
        call.accumulate != first.accumulate)
      fail_thread("wgmma with operands that differ within the warpgroup");
  }
  group.open.push_back(std::move(product));
}

void fence(void* const*, int) { own().fenced = true; }

void commit(void* const*, int) {
  Warpgroup& group = own();
  if (random() % 2 == 0)
    for (Product& product : group.open) read_operands(product);
  group.committed.push_back(std::move(group.open));
  group.open.clear();
}

void finish(void* const* slots, int) {
  Warpgroup& group = own();
  const auto pending = static_cast<size_t>(*static_cast<const int*>(slots[0]));
  while (group.committed.size() > pending) {
    for (Product& product : group.committed.front()) run_product(product);
    group.committed.pop_front();
  }
  group.fenced = false;
}

}  // namespace

void wgmma(int type, int n, int32_t* d, uint64_t a, const uint32_t* a_registers, uint64_t b, bool accumulate) {
  Call call{type, n, d, a, a_registers, b, accumulate};
  collective(kWarpgroup, &call, &begin, "wgmma");
}
void wgmma_fence() { collective(kWarpgroup, nullptr, &fence, "wgmma.fence"); }
void wgmma_commit() { collective(kWarpgroup, nullptr, &commit, "wgmma.commit_group"); }
void wgmma_wait(int pending) { collective(kWarpgroup, &pending, &finish, "wgmma.wait_group"); }

}  // namespace bitgrad::cuda::emulation
