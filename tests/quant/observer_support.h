// Observers and their states for tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/quant/quantizer.h"
#include "quant/reference.h"

namespace bitgrad::test {

inline QuantSpec spec_of(const std::string& scheme, DType dtype = dtypes::int8, const Granularity& g = {}) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.granularity = g;
  return spec;
}

inline std::unique_ptr<Observer> observer_named(const std::string& name, const QuantSpec& spec, int64_t features = 4) {
  return make_observer({.name = name, .momentum = 0.9f, .percentile = 99.0f}, spec, features);
}

inline Tensor state_of(const Observer& observer, std::string_view name) {
  for (const Observer::State& s : observer.state())
    if (s.name == name) return s.tensor;
  return {};
}

inline std::map<std::string, std::vector<double>> whole_state(const Observer& observer) {
  std::map<std::string, std::vector<double>> out;
  for (const Observer::State& s : observer.state()) out[std::string(s.name)] = s.tensor.elements();
  return out;
}

inline float scale_of(const QuantParams& p, int64_t j = 0) { return p.scale->as<float>()[j]; }

// Normal numbers with a few far outliers.
inline std::vector<float> draws_with_outliers(int64_t n, uint64_t seed) {
  const RandomStream stream{seed, Purpose::kUser, 3, 0};
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    x[static_cast<size_t>(i)] = stream.normal(static_cast<uint64_t>(i)) * (i % 997 == 5 ? 12.0f : 1.0f);
  return x;
}

}  // namespace bitgrad::test
