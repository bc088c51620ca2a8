#include "bitgrad/nn/precision.h"

#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {
namespace {

struct InitRule {
  std::string_view name;
  // Value of element e.
  float (*draw)(const Init&, const Fans&, const RandomStream&, uint64_t e);
};

float between(double lo, double hi, float u) { return static_cast<float>(lo) + static_cast<float>(hi - lo) * u; }
double fan_in(const Fans& s) { return static_cast<double>(s.in); }
double fans(const Fans& s) { return static_cast<double>(s.in) + static_cast<double>(s.out); }
float symmetric(double bound, float u) { return between(-bound, bound, u); }

// Same as the default of the configuration key weights.init.
constexpr std::string_view kDefaultRule = "glorot_uniform";

constexpr InitRule kRules[] = {
    {"constant", [](const Init& i, const Fans&, const RandomStream&, uint64_t) { return static_cast<float>(i.a); }},
    {"uniform",
     [](const Init& i, const Fans&, const RandomStream& r, uint64_t e) { return between(i.a, i.b, r.uniform(e)); }},
    {"normal", [](const Init& i, const Fans&, const RandomStream& r,
                  uint64_t e) { return static_cast<float>(i.a) + static_cast<float>(i.b) * r.normal(e); }},
    {"glorot_uniform", [](const Init&, const Fans& s, const RandomStream& r,
                          uint64_t e) { return symmetric(std::sqrt(6.0 / fans(s)), r.uniform(e)); }},
    {"glorot_normal", [](const Init&, const Fans& s, const RandomStream& r,
                         uint64_t e) { return static_cast<float>(std::sqrt(2.0 / fans(s))) * r.normal(e); }},
    {"he_uniform", [](const Init&, const Fans& s, const RandomStream& r,
                      uint64_t e) { return symmetric(std::sqrt(6.0 / fan_in(s)), r.uniform(e)); }},
    {"he_normal", [](const Init&, const Fans& s, const RandomStream& r,
                     uint64_t e) { return static_cast<float>(std::sqrt(2.0 / fan_in(s))) * r.normal(e); }},
    {"zeros", [](const Init&, const Fans&, const RandomStream&, uint64_t) { return 0.0f; }},
};

}  // namespace

std::vector<std::string_view> init_names() {
  std::vector<std::string_view> names;
  for (const InitRule& r : kRules) names.push_back(r.name);
  return names;
}

void initialize_part(const Init& init, uint64_t seed, std::string_view path, const Shape& full, int64_t first,
                     const Tensor& out, Fans fans) {
  if (fans.in == 0) fans.in = full.cols();
  if (fans.out == 0) fans.out = full.rows();
  const InitRule* rule = nullptr;
  const std::string_view name = init.name.empty() ? kDefaultRule : std::string_view(init.name);
  for (const InitRule& r : kRules)
    if (r.name == name) rule = &r;
  if (rule == nullptr) {
    const auto names = init_names();
    fail("init", unknown_name("rule", init.name, {names.begin(), names.end()}));
  }
  if (!out.device().is_cpu()) {
    const DeviceGuard host(Device::cpu());
    const Tensor drawn = Tensor::empty(out.shape(), out.dtype(), MemoryKind::kWorkspace);
    initialize_part(init, seed, path, full, first, drawn, fans);
    return out.copy_from(drawn);
  }
  const RandomStream draws{seed, Purpose::kInit, site_id(path), 0};
  float* x = out.as<float>();
  parallel_ranges(out.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = rule->draw(init, fans, draws, static_cast<uint64_t>(first + i));
  });
}

}  // namespace bitgrad
