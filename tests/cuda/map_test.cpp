// Maps on emulated devices.
#include "kernels/map/map.h"
#include "bitgrad/kernels/kernel.h"

#include <map>
#include <string_view>
#include <vector>

#include "autograd/map/gradients.h"
#include "both.h"
#include "kernels/map/fill.h"
#include "nn/map/list.h"
#include "ops/map/linear.h"
#include "optim/map/finish.h"
#include "quant/map/list.h"
#include "train/map/list.h"

namespace bitgrad::test {

namespace {

struct ListedMap {
  std::string_view name;
  bool runs_on_device;
};
// Every line of every layer's list.
std::vector<ListedMap> listed_maps() {
  return {
#define BITGRAD_MAP(functor)                       \
  {bitgrad::detail::MapLine<maps::functor>::kName, \
   bitgrad::detail::MapLine<maps::functor>::runs[static_cast<size_t>(DeviceKind::kCuda)] != nullptr},
#include "autograd/map/maps.inc"
#include "kernels/map/maps.inc"
#include "nn/map/maps.inc"
#include "ops/map/maps.inc"
#include "optim/map/maps.inc"
#include "quant/map/maps.inc"
#include "train/map/maps.inc"
#undef BITGRAD_MAP
  };
}

TEST_CASE("A map writes every index and nothing behind it, on the CPU and on the device") {
  for (const int64_t n : {0, 1, 31, 32, 33, 4095, 4096, 4097, 32767, 32768, 100001}) {
    const auto run = [&](Outcome& out) {
      const Placed<float> y(std::vector<float>(static_cast<size_t>(n) + 7, -1.0f));
      run_map(maps::Fill{y.data() + 3, 2.5f}, n);
      out.add(y);
    };
    CHECK(differing_on_device(run) == 0);
    Outcome out;
    run(out);
    int64_t filled = 0;
    for (const float v : out.floats) filled += v == 2.5f;
    CHECK(filled == n);
  }
}

TEST_CASE("A map copies its functor: the caller's may be gone when the kernel runs") {
  const DeviceGuard guard(Device::cuda());
  const Placed<float> y(std::vector<float>(100, 0.0f));
  {
    maps::Fill fill{y.data(), 1.0f};
    run_map(fill, 50);
    fill.value = 7.0f;
    fill.y = nullptr;
  }
  const std::vector<float> values = y.values();
  CHECK(values[0] == 1.0f);
  CHECK(values[49] == 1.0f);
  CHECK(values[50] == 0.0f);
}

TEST_CASE("Columns of packed codes become rows of their own: every bit of them, and no other") {
  constexpr int64_t kRows = 3, kWords = 6;
  std::vector<uint64_t> in;
  for (uint64_t i = 0; i < kRows * kWords; ++i) in.push_back((i + 1) * 0x9E3779B97F4A7C15u);
  const auto bit = [](const std::vector<uint64_t>& words, int64_t at) {
    return words[static_cast<size_t>(at / 64)] >> (at % 64) & 1;
  };
  for (const int64_t first : {0, 1, 40, 63, 64, 65, 193})
    for (const int64_t count : {1, 30, 63, 64, 65, 128, 190, 191}) {
      const int64_t words = (count + 63) / 64;
      std::vector<uint64_t> out(static_cast<size_t>(kRows * words), ~uint64_t{0});
      run_map(maps::CopyBits{in.data(), kWords, first, count, out.data(), words}, kRows * words);
      int wrong = 0;
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t b = 0; b < words * 64; ++b)
          wrong += bit(out, r * words * 64 + b) != (b < count ? bit(in, r * kWords * 64 + first + b) : 0);
      INFO("first " << first << ", count " << count);
      CHECK(wrong == 0);
    }
}

TEST_CASE("A gradient is delivered in bf16 by the draw of each element, rounded once after the sum") {
  const RandomStream draws{5, Purpose::kGradient, 3, 1};
  std::vector<float> g;
  std::vector<uint16_t> before;
  for (int i = 0; i < 300; ++i) {
    g.push_back(0.1f * static_cast<float>(i + 1));
    before.push_back(bf16_from_float(0.37f * static_cast<float>(300 - i)));
  }
  for (const bool stochastic : {false, true}) {
    std::vector<uint16_t> out = before, expected;
    for (size_t i = 0; i < g.size(); ++i) {
      const float sum = bf16_to_float(before[i]) + g[i];
      expected.push_back(stochastic ? bf16_from_float_stochastic(sum, draws.bits16(i)) : bf16_from_float(sum));
    }
    run_map(maps::DeliverBf16{out.data(), g.data(), nullptr, true, stochastic, draws}, 300);
    CHECK(out == expected);
  }
}

TEST_CASE("A recorded gradient is multiplied by the factor of now") {
  StepScalars live;
  live.factor = 0.3f;
  std::vector<float> g{1.0f, -2.0f, 5.0f};
  run_map(maps::ScaleByFactor{&live, g.data()}, 3);
  CHECK(g == std::vector<float>{1.0f * 0.3f, -2.0f * 0.3f, 5.0f * 0.3f});
}

TEST_CASE("Every line of every layer's maps.inc is a kernel of the device, available while one is current") {
  const auto listed = [] {
    std::map<std::string, bool> available;
    for (const KernelInfo& k : all_kernels())
      if (k.family == "map") {
        CHECK(k.device == DeviceKind::kCuda);
        CHECK(available.emplace(k.name, k.available()).second);
      }
    return available;
  };
  REQUIRE(device_count(DeviceKind::kCuda) > 0);
  const std::vector<ListedMap> lines = listed_maps();
  for (const bool current : {false, true}) {
    const DeviceGuard guard(current ? Device::cuda() : Device::cpu());
    const std::map<std::string, bool> kernels = listed();
    CHECK(kernels.size() == lines.size());
    for (const ListedMap& line : lines) {
      INFO(line.name);
      CHECK(line.runs_on_device);
      const auto kernel = kernels.find(std::string(line.name) + "_cuda");
      REQUIRE(kernel != kernels.end());
      CHECK(kernel->second == current);
    }
  }
}

}  // namespace
}  // namespace bitgrad::test
