// Codes that readers of a value ask for, in the pass to integer graphs. docs/numerics.md section 4, "The integer
// scheme".
#pragma once

#include <functional>

#include "bitgrad/nn/integer_graph.h"

namespace bitgrad::inference::integer {

inline constexpr int64_t kLeastCode = -128, kMostCode = 127;

// Scale, bounds, and how an input of the model becomes codes.
struct Wanted {
  CodeScale scale = {};
  int64_t lo = kLeastCode, hi = kMostCode;
  const Quantize* quantize = nullptr;

  // Of x where the codes are those of f(x), f an increasing function that is constant outside [low, high].
  Wanted within(double low, double high) const;
  bool same_codes(const Wanted& other) const { return scale == other.scale && lo == other.lo && hi == other.hi; }
};

// What value v of `graph` is made for if it has several readers: the codes of the first quantizer that reads it, unless
// another one, direct or behind activations, moves and concatenations, has a range that is wider by more than one of
// its steps; else codes of a range that has the ranges of all of them, of which `first` is one. wanted_by: the codes
// that a quantizer asks for.
Wanted wanted_by_all(const Graph& graph, Value v, const Wanted& first,
                     const std::function<Wanted(const Node&, const Quantize&)>& wanted_by);

}  // namespace bitgrad::inference::integer
