// The rules of quant/fixed_point.h in INT64 operators. Div of ONNX rounds towards zero.
#include <algorithm>
#include <functional>

#include "export/onnx_integer.h"

namespace bitgrad::onnx {
namespace {

constexpr int kFraction = 31;

// A number made of each multiplier.
std::string each(GraphBuilder& g, const std::vector<FixedPoint>& multipliers,
                 const std::function<int64_t(FixedPoint)>& number) {
  std::vector<int64_t> x;
  x.reserve(multipliers.size());
  for (const FixedPoint f : multipliers) x.push_back(number(f));
  return per_channel(g, std::move(x), Type::kInt64);
}

// x / y rounded down, of any sign.
std::string down(GraphBuilder& g, const std::string& x, const std::string& y) {
  return g.add("Div", {g.add("Sub", {x, g.add("Mod", {x, y})}), y});
}

// (acc * m + 2^(30-e)) >> (31-e)
std::string single(GraphBuilder& g, const std::string& sums, const std::vector<FixedPoint>& multipliers) {
  const std::string product = g.add("Mul", {sums, each(g, multipliers, [](FixedPoint f) { return f.m; })});
  const std::string half = each(g, multipliers, [](FixedPoint f) { return int64_t{1} << (kFraction - 1 - f.e); });
  return down(g, g.add("Add", {product, half}),
              each(g, multipliers, [](FixedPoint f) { return int64_t{1} << (kFraction - f.e); }));
}

// h = (clamp(acc * 2^left) * m + 2^30) >> 31. A product is less than 2^62, so that with 2^62 more it is positive, and
// the division rounds down.
std::string high_half(GraphBuilder& g, std::string sums, const std::vector<FixedPoint>& multipliers) {
  if (std::any_of(multipliers.begin(), multipliers.end(), [](FixedPoint f) { return f.e > 0; })) {
    sums = g.add("Mul", {sums, each(g, multipliers, [](FixedPoint f) { return int64_t{1} << std::max(f.e, 0); })});
    sums = g.add("Clip",
                 {sums, g.integers({-(int64_t{1} << kFraction)}, {}), g.integers({(int64_t{1} << kFraction) - 1}, {})});
  }
  const std::string product = g.add("Mul", {sums, each(g, multipliers, [](FixedPoint f) { return f.m; })});
  constexpr int64_t kMore = int64_t{1} << (2 * kFraction);
  const std::string raised = g.add("Add", {product, g.integers({kMore + (int64_t{1} << (kFraction - 1))}, {})});
  const std::string quotient = g.add("Div", {raised, g.integers({int64_t{1} << kFraction}, {})});
  return g.add("Sub", {quotient, g.integers({kMore >> kFraction}, {})});
}

}  // namespace

std::string requantized(GraphBuilder& g, std::string sums, const std::vector<FixedPoint>& multipliers,
                        OutputRounding rule) {
  if (rule == OutputRounding::kSingle) return single(g, sums, multipliers);
  std::string h = high_half(g, std::move(sums), multipliers);
  if (std::all_of(multipliers.begin(), multipliers.end(), [](FixedPoint f) { return f.e >= 0; })) return h;
  const std::string half =
      each(g, multipliers, [](FixedPoint f) { return f.e < 0 ? int64_t{1} << (-f.e - 1) : int64_t{0}; });
  const std::string right = each(g, multipliers, [](FixedPoint f) { return int64_t{1} << std::max(-f.e, 0); });
  if (rule == OutputRounding::kRuy) return down(g, g.add("Add", {h, half}), right);
  // Ties away from zero: half of the divisor is added on the side of h.
  return g.add("Div", {g.add("Add", {h, g.add("Mul", {g.add("Sign", {h}), half})}), right});
}

std::string per_channel(GraphBuilder& g, std::vector<int64_t> x, Type type) {
  if (std::all_of(x.begin(), x.end(), [&](int64_t each) { return each == x[0]; })) return g.integers({x[0]}, {}, type);
  const auto count = static_cast<int64_t>(x.size());
  return g.integers(x, {count, 1, 1}, type);
}

std::string codes_of_integers(GraphBuilder& g, const std::string& x, int64_t zero, int64_t lo, int64_t hi, Type type) {
  const auto number = [&](int64_t n) { return g.integers({n + kShift}, {}, type); };
  const std::string moved = zero + kShift == 0 ? x : g.add("Add", {x, number(zero)});
  return g.cast(g.add("Clip", {moved, number(lo), number(hi)}), Type::kUint8);
}

}  // namespace bitgrad::onnx
