// The same calls on the CPU and on an emulated device, compared bit by bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/memory.h"
#include "support/catch.h"

namespace bitgrad::test {

// An array on the current device, `shift` elements behind an address that the device hands out.
template <typename T>
class Placed {
 public:
  explicit Placed(const std::vector<T>& values, int64_t shift = 0)
      : count_(values.size()), shift_(shift), space_((static_cast<int64_t>(values.size()) + shift) * kSize) {
    if (count_ > 0) device_backend(current_device()).copy_from_host(data(), values.data(), bytes());
  }
  T* data() const { return space_.template as<T>() + shift_; }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    if (count_ > 0) device_backend(current_device()).copy_to_host(out.data(), data(), bytes());
    return out;
  }

 private:
  static constexpr int64_t kSize = sizeof(T);
  int64_t bytes() const { return static_cast<int64_t>(count_) * kSize; }
  size_t count_;
  int64_t shift_;
  Workspace space_;
};

// What calls have left, one after the other: floats (two NaN are equal) and bytes.
struct Outcome {
  std::vector<float> floats;
  std::vector<uint8_t> bytes;
  void add(const Placed<float>& x) {
    const std::vector<float> v = x.values();
    floats.insert(floats.end(), v.begin(), v.end());
  }
  template <typename T>
  void add(const Placed<T>& x) {
    const std::vector<T> v = x.values();
    const auto* p = reinterpret_cast<const uint8_t*>(v.data());
    bytes.insert(bytes.end(), p, p + v.size() * sizeof(T));
  }
};

inline int64_t differing(const Outcome& a, const Outcome& b) {
  if (a.floats.size() != b.floats.size() || a.bytes.size() != b.bytes.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.floats.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(a.floats[i]) == std::bit_cast<uint32_t>(b.floats[i]);
    count += !same && !(std::isnan(a.floats[i]) && std::isnan(b.floats[i]));
  }
  for (size_t i = 0; i < a.bytes.size(); ++i) count += a.bytes[i] != b.bytes[i];
  return count;
}

// body(outcome) is run on the CPU and on cuda:0; gives how many numbers differ.
template <typename Body>
int64_t differing_on_device(Body&& body) {
  Outcome cpu, cuda;
  body(cpu);
  const DeviceGuard guard(Device::cuda());
  body(cuda);
  return differing(cpu, cuda);
}

// Normal numbers with zeros, subnormals and large ones between; Inf and NaN where asked for.
inline std::vector<float> some_numbers(int64_t n, uint32_t seed, bool nonfinite = false) {
  static constexpr float kSpecial[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -3e-41f, 3e38f, -3e38f, 1.17549435e-38f};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t kind = random() % 10;
    x.push_back(kind == 0 ? kSpecial[random() % std::size(kSpecial)] : normal(random));
    if (nonfinite && random() % 50 == 0)
      x.back() = random() % 2 == 0 ? std::nanf("") : (random() % 2 == 0 ? kInf : -kInf);
  }
  return x;
}

template <typename T>
std::vector<T> some_words(int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<T>(random()));
  return x;
}

}  // namespace bitgrad::test
