// The emulated GPU itself: threads, barriers, warps, clusters, and what it says about wrong kernels.
#include <algorithm>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "cuda/device/builtins.h"
#include "cuda/support.h"
#include "emulation/cuda/barrier.h"
#include "emulation/cuda/emulation.h"

namespace bitgrad::cuda {

// Not in an unnamed namespace: the emulation then knows its name.
BITGRAD_GLOBAL void named_kernel_that_traps() { __trap(); }
BITGRAD_GLOBAL void keeps_1000_bytes() {
  [[maybe_unused]] __shared__ char kept[1000];
  kept[0] = 1;
}

namespace {

class Seed {
 public:
  explicit Seed(uint64_t seed) : before_(emulation::seed()) { emulation::set_seed(seed); }
  ~Seed() { emulation::set_seed(before_); }

 private:
  uint64_t before_;
};

// What the launch says, empty when it says nothing.
template <typename Launch>
std::string error_of(Launch&& launch) {
  try {
    launch();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kDevice);
    return error.what();
  }
  return {};
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

BITGRAD_GLOBAL void scale_values(const float* in, float* out, int n, float factor) {
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
       i += static_cast<int>(gridDim.x * blockDim.x))
    out[i] = in[i] * factor;
}

TEST_CASE_METHOD(OnDevice, "A grid-stride loop of an emulated kernel writes every element once") {
  for (const int n : {1, 31, 1000, 4097}) {
    std::vector<float> in(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) in[static_cast<size_t>(i)] = static_cast<float>(i);
    DeviceArray<float> a(in), b(std::vector<float>(in.size(), -1.0f));
    launch(scale_values, {{3}, {64}}, a.data(), b.data(), n, 2.0f);
    const std::vector<float> out = b.values();
    bool right = true;
    for (int i = 0; i < n; ++i) right = right && out[static_cast<size_t>(i)] == 2.0f * static_cast<float>(i);
    CHECK(right);
  }
}

BITGRAD_GLOBAL void write_places(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

TEST_CASE_METHOD(OnDevice,
                 "Blocks and threads of three dimensions are numbered with x fastest, for any number of host threads") {
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    DeviceArray<unsigned> out(size_t{2 * 3 * 4} * (5 * 2 * 3));
    launch(write_places, {{2, 3, 4}, {5, 2, 3}}, out.data());
    const std::vector<unsigned> values = out.values();
    bool right = true;
    for (unsigned i = 0; i < values.size(); ++i) right = right && values[i] == i / 30 * 1000 + i % 30;
    CHECK(right);
  }
  set_num_threads(before);
}

BITGRAD_GLOBAL void block_sums(const int* in, int* out, int rounds) {
  __shared__ int partial[32];
  int sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum + r;
    __syncthreads();
    if (threadIdx.x == 0) {
      int total = 0;
      for (unsigned w = 0; w < blockDim.x / 32; ++w) total += partial[w] - r;
      out[blockIdx.x] = total;
    }
    __syncthreads();
  }
}

TEST_CASE_METHOD(OnDevice, "Shuffles and shared memory add up a block in any order of its threads") {
  std::vector<int> in(5 * 256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * i % 1000);
  for (const uint64_t seed : {0, 1, 2, 99}) {
    const Seed order(seed);
    DeviceArray<int> a(in), b(std::vector<int>(5, 0));
    launch(block_sums, {{5}, {256}}, a.data(), b.data(), 3);
    const std::vector<int> out = b.values();
    for (size_t block = 0; block < 5; ++block) {
      int sum = 0;
      for (size_t i = 0; i < 256; ++i) sum += in[block * 256 + i];
      CHECK(out[block] == sum);
    }
  }
}

// The barrier between the write and the read is missing.
BITGRAD_GLOBAL void neighbour_without_barrier(int* out) {
  int* const shared = dynamic_shared<int>();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
  out[threadIdx.x] = shared[(threadIdx.x + blockDim.x - 1) % blockDim.x];
}

TEST_CASE_METHOD(OnDevice, "A missing barrier shows as poison of the shared memory, in every order") {
  for (const uint64_t seed : {0, 1, 2}) {
    const Seed order(seed);
    DeviceArray<int> out(64);
    launch(neighbour_without_barrier, {{1}, {64}, 64 * 4}, out.data());
    const std::vector<int> values = out.values();
    CHECK(std::count(values.begin(), values.end(), static_cast<int>(0xA5A5A5A5)) > 0);
  }
}

template <typename T>
BITGRAD_GLOBAL void shuffle_all(T* out, int width, unsigned mask) {
  const int lane = static_cast<int>(threadIdx.x);
  if (((mask >> lane) & 1u) == 0) return;
  const T mine = static_cast<T>(lane * 3 + 1);
  out[lane] = __shfl_sync(mask, mine, lane + 5, width);
  out[32 + lane] = __shfl_up_sync(mask, mine, 3, width);
  out[64 + lane] = __shfl_down_sync(mask, mine, 3, width);
  out[96 + lane] = __shfl_xor_sync(mask, mine, 5, width);
}

template <typename T>
void check_shuffles(int width) {
  DeviceArray<T> out(128);
  launch(shuffle_all<T>, {{1}, {32}}, out.data(), width, 0xffffffffu);
  const std::vector<T> values = out.values();
  for (int lane = 0; lane < 32; ++lane) {
    const int first = lane / width * width, last = first + width - 1;
    const auto value = [](int source) { return static_cast<T>(source * 3 + 1); };
    const size_t l = static_cast<size_t>(lane);
    CHECK(values[l] == value(first + (lane + 5) % width));
    CHECK(values[32 + l] == value(lane - 3 < first ? lane : lane - 3));
    CHECK(values[64 + l] == value(lane + 3 > last ? lane : lane + 3));
    CHECK(values[96 + l] == value((lane ^ 5) > last ? lane : lane ^ 5));
  }
}

TEST_CASE_METHOD(OnDevice, "Shuffles move values of 4 and 8 bytes within segments of every width") {
  for (const int width : {2, 4, 8, 16, 32}) {
    check_shuffles<int>(width);
    check_shuffles<float>(width);
    check_shuffles<double>(width);
    check_shuffles<unsigned long long>(width);
  }
}

BITGRAD_GLOBAL void votes(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
  // The halves of the warp vote apart.
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  const unsigned part = lane < 16 ? __ballot_sync(half, lane < 4) : __ballot_sync(half, lane >= 30);
  const unsigned any = static_cast<unsigned>(__any_sync(half, lane == 3)),
                 all = static_cast<unsigned>(__all_sync(half, lane < 16));
  const unsigned sum = __reduce_add_sync(half, lane), high = __reduce_max_sync(half, lane);
  unsigned* const mine = out + threadIdx.x * 6;
  mine[0] = odd, mine[1] = part, mine[2] = any, mine[3] = all, mine[4] = sum, mine[5] = high;
}

TEST_CASE_METHOD(OnDevice, "Ballots, votes and reductions read the lanes of their mask only") {
  for (const uint64_t seed : {0, 5}) {
    const Seed order(seed);
    DeviceArray<unsigned> out(64 * 6);
    launch(votes, {{1}, {64}}, out.data());
    const std::vector<unsigned> v = out.values();
    for (size_t t = 0; t < 64; ++t) {
      const bool low = t % 32 < 16;
      const std::vector<unsigned> expected{0xaaaaaaaau,   low ? 0xfu : 0xc0000000u, low ? 1u : 0u,
                                           low ? 1u : 0u, low ? 120u : 376u,        low ? 15u : 31u};
      CHECK(std::vector<unsigned>(v.begin() + static_cast<int64_t>(t) * 6,
                                  v.begin() + static_cast<int64_t>(t) * 6 + 6) == expected);
    }
  }
}

BITGRAD_GLOBAL void early_return_then_barrier(int* out) {
  if (threadIdx.x == 7) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
BITGRAD_GLOBAL void divergent_collectives(int* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  else
    out[threadIdx.x] = static_cast<int>(__ballot_sync(0xffffffffu, 1));
}
BITGRAD_GLOBAL void half_waits(int* out) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    out[threadIdx.x] = static_cast<int>(__ballot_sync(0xffffffffu, 1)), emulation::named_barrier(3, 64);
}
BITGRAD_GLOBAL void spins(const int* flag) {
  while (__atomic_load_n(flag, __ATOMIC_RELAXED) == 0) emulation::yield("a spin loop");
}
BITGRAD_GLOBAL void mask_without_caller() { __syncwarp(2u - (threadIdx.x & 1u)); }
BITGRAD_GLOBAL void past_shared() { dynamic_shared<unsigned char>()[100] = 1; }

TEST_CASE_METHOD(OnDevice, "Wrong kernels end with an error that names kernel, block and thread, in every order") {
  DeviceArray<int> out(std::vector<int>(128, 0));
  for (const uint64_t seed : {0, 1, 77}) {
    const Seed order(seed);
    const std::string early =
        error_of([&] { launch(early_return_then_barrier, {.grid = {2}, .block = {64}, .name = "early"}, out.data()); });
    CHECK(has(early, "[early] block ("));
    CHECK((has(early, "returned while") || has(early, "have returned")));
    const std::string mixed =
        error_of([&] { launch(divergent_collectives, {.grid = {1}, .block = {32}, .name = "mixed"}, out.data()); });
    CHECK(has(mixed, "[mixed] block (0,0,0) thread ("));
    CHECK((has(mixed, "is in __ballot_sync while other lanes of its warp are in __shfl_sync") ||
           has(mixed, "is in __shfl_sync while other lanes of its warp are in __ballot_sync")));
    const std::string dead =
        error_of([&] { launch(half_waits, {.grid = {1}, .block = {64}, .name = "half"}, out.data()); });
    CHECK(has(dead, "[half] deadlock: nobody can go on: "));
    CHECK(has(dead, "thread (0,0,0) in __syncthreads"));
    CHECK(has(dead, "thread (32,0,0) in named barrier"));
    const std::string spin =
        error_of([&] { launch(spins, {.grid = {1}, .block = {32}, .name = "spin"}, out.data() + 127); });
    CHECK(has(spin, "[spin] deadlock: all threads spin or wait: "));
    CHECK(has(spin, "in a spin loop"));
    CHECK(has(error_of([&] { launch(mask_without_caller, {.grid = {1}, .block = {32}, .name = "mask"}); }),
              "lacks the calling lane"));
    CHECK(
        has(error_of([&] { launch(past_shared, {.grid = {1}, .block = {1}, .shared_bytes = 100, .name = "shared"}); }),
            "[shared] block (0,0,0): wrote 0 bytes past the 100 bytes of dynamic shared memory"));
  }
  CHECK(has(error_of([] {
              launch(named_kernel_that_traps, {{1}, {1}});
            }),
            "named_kernel_that_traps] block (0,0,0) thread (0,0,0): __trap()"));
  launch(block_sums, {{1}, {64}}, out.data(), out.data(), 1);  // the machine goes on after an error
  CHECK(out.values()[127] == 0);
}

TEST_CASE_METHOD(OnDevice, "Launch shapes that a device refuses are refused") {
  const auto refused = [](LaunchShape shape) {
    return has(error_of([&] { launch(mask_without_caller, shape); }), "invalid configuration argument");
  };
  CHECK(refused({{1}, {1025}}));
  CHECK(refused({{1}, {0}}));
  CHECK(refused({{1, 65536}, {1}}));
  CHECK(refused({{1}, {1}, (227 << 10) + 1}));
  CHECK(refused({{3}, {1}, 0, 2}));
  CHECK(refused({{16}, {1}, 0, 16}));
  emulation::set_capability(8, 0, false);
  CHECK(refused({{2}, {1}, 0, 2}));
  CHECK(refused({{1}, {1}, (163 << 10) + 1}));
  emulation::set_capability(9, 0, true);
  launch(mask_without_caller, {{0}, {64}});  // an empty grid is no launch
}

struct Pointers {
  int64_t count;
  const void *first, *second;
};
BITGRAD_GLOBAL void reads_nothing(int, Pointers) {}

TEST_CASE_METHOD(OnDevice, "Pointers to host memory are refused with kernel, argument and place") {
  DeviceArray<int> there(size_t{10});
  const std::vector<int> heap(10);
  const int stack = 1;
  static const int constant[1] = {2};
  const auto said = [&](const void* first, const void* second) {
    return error_of([&] {
      launch(reads_nothing, {.grid = {1}, .block = {1}, .name = "reader"}, 7, Pointers{5, first, second});
    });
  };
  CHECK(said(there.data(), there.data() + 10) == "");
  CHECK(said(nullptr, reinterpret_cast<const void*>(uintptr_t{0x3FF0000000000000})) == "");  // 1.0
  for (const uint64_t pair : {0x400000004, 0x7FFFFFFFF, 0x400BF800000, 0xFFFBF800000})  // two numbers of four bytes
    CHECK(said(nullptr, reinterpret_cast<const void*>(pair)) == "");
  CHECK(has(said(heap.data(), nullptr), "[reader] cuda:0: argument 1, byte 8, is a pointer to host memory"));
  CHECK(has(said(there.data(), &stack), "argument 1, byte 16, is a pointer to host memory"));
  CHECK(has(said(there.data(), constant), "argument 1, byte 16, is a pointer to host memory"));
}

TEST_CASE("A launch while the CPU is the current device is refused") {
  const std::string text =
      error_of([] { launch(reads_nothing, {.grid = {1}, .block = {1}, .name = "reader"}, 7, Pointers{}); });
  CHECK(has(text, "[reader] launch: the current device is the CPU, expected a CUDA device"));
  CHECK(has(text, "Hint: DeviceGuard"));
}

TEST_CASE_METHOD(OnDevice, "Static shared memory counts beside the dynamic one") {
  constexpr int kLimit = 227 << 10;
  const auto said = [](int dynamic_bytes) {
    return error_of([&] { launch(keeps_1000_bytes, {.grid = {1}, .block = {1}, .shared_bytes = dynamic_bytes}); });
  };
  CHECK(said(kLimit - 1000) == "");
  CHECK(has(said(kLimit - 999), "of dynamic and 1000 of static shared memory, expected at most 232448 in all"));
  // What the library opts into: no kernel has static arrays of more than kMostStaticShared.
  CHECK_FALSE(cuda::detail::needs_shared_opt_in((48 << 10) - cuda::detail::kMostStaticShared));
  CHECK(cuda::detail::needs_shared_opt_in((48 << 10) - 1023));  // update_rows of 12288 columns: 1024 bytes are static
}

BITGRAD_GLOBAL void tell_shared_address(uint32_t* out) {
  *out = emulation::shared_address(dynamic_shared<char>() + 48);
}

TEST_CASE_METHOD(OnDevice, "Dynamic shared memory begins behind what the system keeps") {
  DeviceArray<uint32_t> out(size_t{1});
  launch(tell_shared_address, {{1}, {1}, 64}, out.data());
  CHECK(out.values()[0] == 1024 + 48);
}

// Every block of a cluster leaves its rank in the shared memory of the next one.
BITGRAD_GLOBAL void pass_ranks(int* out) {
  const int rank = emulation::cluster_rank(), size = emulation::cluster_size();
  static_cast<int*>(emulation::shared_base((rank + 1) % size))[threadIdx.x] =
      rank * 100 + static_cast<int>(threadIdx.x);
  emulation::cluster_arrive();
  emulation::cluster_wait();
  out[blockIdx.x * blockDim.x + threadIdx.x] = dynamic_shared<int>()[threadIdx.x];
}

TEST_CASE_METHOD(OnDevice, "The blocks of a cluster live together and reach each other's shared memory") {
  for (const uint64_t seed : {0, 3}) {
    const Seed order(seed);
    for (const int cluster : {1, 2, 4}) {
      DeviceArray<int> out(8 * 40);
      launch(pass_ranks, {{8}, {40}, 160, cluster}, out.data());
      const std::vector<int> v = out.values();
      bool right = true;
      for (int i = 0; i < 8 * 40; ++i)
        right = right && v[static_cast<size_t>(i)] == (i / 40 % cluster + cluster - 1) % cluster * 100 + i % 40;
      CHECK(right);
    }
  }
}

// A producer warp hands numbers to a consumer warpgroup, one by one, through a flag and named barriers.
BITGRAD_GLOBAL void hand_over(int* out, int rounds) {
  volatile int* const box = dynamic_shared<int>();
  const int rank = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int r = 0; r < rounds; ++r) {
    if (rank >= 128) {
      if (rank == 128) box[0] = r + 1;
      emulation::named_barrier(1, 160);
      emulation::named_barrier(2, 160);
    } else {
      emulation::named_barrier(1, 160);
      sum += box[0];
      emulation::named_barrier_arrive(2, 160);
    }
  }
  struct Slot {
    int value, total;
  } slot{sum, 0};
  if (rank < 128) {
    emulation::collective(128, &slot, [](void* const* slots, int threads) {
      int total = 0;
      for (int i = 0; i < threads; ++i) total += static_cast<Slot*>(slots[i])->value;
      for (int i = 0; i < threads; ++i) static_cast<Slot*>(slots[i])->total = total;
    });
    out[rank] = slot.total;
  }
}

TEST_CASE_METHOD(OnDevice, "Named barriers and collectives of a warpgroup hand work from warp to warp") {
  for (const uint64_t seed : {0, 1, 8}) {
    const Seed order(seed);
    DeviceArray<int> out(128);
    launch(hand_over, {{1}, {160}, 16}, out.data(), 10);
    CHECK(out.values() == std::vector<int>(128, 128 * 55));
  }
}

BITGRAD_GLOBAL void wait_for_neighbour(int* out) {
  volatile int* const box = dynamic_shared<int>();
  if (threadIdx.x == 0) *box = 0;
  __syncthreads();
  struct Turn {
    volatile int* box;
    int mine;
  } turn{box, static_cast<int>(threadIdx.x)};
  emulation::wait_until([](void* t) { return *static_cast<Turn*>(t)->box == static_cast<Turn*>(t)->mine; }, &turn,
                        "its turn");
  out[threadIdx.x] = *box;
  *box = *box + 1;
}

TEST_CASE_METHOD(OnDevice, "Threads that wait for a condition go on when it holds") {
  for (const uint64_t seed : {0, 4}) {
    const Seed order(seed);
    DeviceArray<int> out(70);
    launch(wait_for_neighbour, {{1}, {70}, 16}, out.data());
    const std::vector<int> v = out.values();
    for (int i = 0; i < 70; ++i) CHECK(v[static_cast<size_t>(i)] == i);
  }
}

BITGRAD_GLOBAL void count_all(int* sum, unsigned* high, unsigned long long* both) {
  atomicAdd(sum, 1);
  atomicMax(high, blockIdx.x * blockDim.x + threadIdx.x);
  atomicOr(both, 1ull << (threadIdx.x % 64));
  if (__syncthreads_count(threadIdx.x < 10) != 10) atomicAdd(sum, 1000000);
}

TEST_CASE_METHOD(OnDevice, "Atomics of many blocks lose nothing") {
  DeviceArray<int> sum(std::vector<int>(1, 0));
  DeviceArray<unsigned> high(std::vector<unsigned>(1, 0));
  DeviceArray<unsigned long long> both(std::vector<unsigned long long>(1, 0));
  launch(count_all, {{300}, {64}}, sum.data(), high.data(), both.data());
  CHECK(sum.values()[0] == 300 * 64);
  CHECK(high.values()[0] == 300 * 64 - 1);
  CHECK(both.values()[0] == ~0ull);
}

TEST_CASE_METHOD(OnDevice, "Intrinsics of bits do what the programming guide says") {
  CHECK(__byte_perm(0x03020100u, 0x07060504u, 0x7531u) == 0x07050301u);
  CHECK(__byte_perm(0x00008000u, 0u, 0x8999u) == 0x00ffffffu);
  CHECK(__funnelshift_l(0x80000000u, 1u, 1) == 3u);
  CHECK(__funnelshift_r(2u, 1u, 1) == 0x80000001u);
  CHECK(__funnelshift_l(7u, 9u, 32) == 9u);
  CHECK(__funnelshift_lc(7u, 9u, 32) == 7u);
  CHECK(__funnelshift_rc(7u, 9u, 40) == 9u);
  CHECK(__dp4a(static_cast<int>(0x80ff0102u), 0x7f7f0304, 5) == -128 * 127 - 127 + 3 + 8 + 5);
  CHECK(__dp4a(0x80ff0102u, 0x7f7f0304u, 5u) == 128u * 127 + 255u * 127 + 3 + 8 + 5);
  CHECK(__brev(1u) == 0x80000000u);
  CHECK(__brevll(2u) == 1ull << 62);
  CHECK(__clz(0) == 32);
  CHECK(__ffs(8) == 4);
  CHECK(__umulhi(0x80000000u, 6u) == 3u);
  CHECK(__float2int_rn(2.5f) == 2);
  CHECK(__float2int_rn(-3e9f) == -2147483647 - 1);
  CHECK(__float2uint_rn(-1.0f) == 0u);
}

}  // namespace
}  // namespace bitgrad::cuda
