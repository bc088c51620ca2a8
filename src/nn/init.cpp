#include "bitgrad/nn/init.h"

#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"

namespace bitgrad {
namespace {

struct InitRule {
  std::string_view name;
  // Number of element e.
  float (*draw)(const Init&, const Shape&, const RandomStream&, uint64_t e);
};

float between(double lo, double hi, float u) { return static_cast<float>(lo) + static_cast<float>(hi - lo) * u; }
double fan_in(const Shape& s) { return static_cast<double>(s.cols()); }
double fan_out(const Shape& s) { return static_cast<double>(s.rows()); }

constexpr InitRule kRules[] = {
    {"constant", [](const Init& i, const Shape&, const RandomStream&, uint64_t) { return static_cast<float>(i.a); }},
    {"uniform", [](const Init& i, const Shape&, const RandomStream& r, uint64_t e) { return between(i.a, i.b, r.uniform(e)); }},
    {"normal", [](const Init& i, const Shape&, const RandomStream& r,
                  uint64_t e) { return static_cast<float>(i.a) + static_cast<float>(i.b) * r.normal(e); }},
    {"glorot_uniform",
     [](const Init&, const Shape& s, const RandomStream& r, uint64_t e) {
       const double bound = std::sqrt(6.0 / (fan_in(s) + fan_out(s)));
       return between(-bound, bound, r.uniform(e));
     }},
    {"kaiming_uniform",
     [](const Init&, const Shape& s, const RandomStream& r, uint64_t e) {
       const double bound = std::sqrt(6.0 / fan_in(s));
       return between(-bound, bound, r.uniform(e));
     }},
};

}  // namespace

std::vector<std::string_view> init_names() {
  std::vector<std::string_view> names;
  for (const InitRule& r : kRules) names.push_back(r.name);
  return names;
}

void initialize(const Init& init, uint64_t seed, std::string_view path, const Tensor& out) {
  const InitRule* rule = nullptr;
  for (const InitRule& r : kRules)
    if (r.name == init.name) rule = &r;
  require(rule != nullptr, "init", "unknown rule '", init.name, "', known are constant, uniform, normal, glorot_uniform, kaiming_uniform");
  const RandomStream draws{seed, Purpose::kInit, site_id(path), 0};
  float* x = out.as<float>();
  parallel_ranges(out.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) x[e] = rule->draw(init, out.shape(), draws, static_cast<uint64_t>(e));
  });
}

}  // namespace bitgrad
