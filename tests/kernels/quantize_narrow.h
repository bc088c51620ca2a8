// Problems of family quantize whose x are bf16 values, in both forms.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "kernels/quantize_problem.h"

namespace bitgrad::quantize_problem {

struct NarrowCase {
  Case c;                        // with the widened values
  std::vector<uint16_t> narrow;  // the same elements at the same places
};

// A random problem. dense: no gap between the rows.
inline NarrowCase narrow_case(std::mt19937& random, DType dtype, CodeRule rule, Granularity g, int64_t rows,
                              int64_t cols, bool dense) {
  NarrowCase out{Case(rows, cols, dtype), {}};
  Case& c = out.c;
  if (dense) c.args.ldx = c.ldx = cols;
  c.args.rule = rule;
  set_scales(c, random, g);
  if (random() % 3 == 0) c.zero.clear();
  if (random() % 4 == 0) c.args.ste = SteRule::kIdentity;
  static const RandomStream kDraws{99, Purpose::kUser, 7, 3};
  if (random() % 3 == 0) c.args.sr = &kDraws;
  c.args.first_element = static_cast<int64_t>(random() % 1000);
  fill_numbers(c, random, static_cast<float>(1 << (random() % dtype.bits())), random() % 2 == 0);
  for (float& x : c.x) {
    out.narrow.push_back(bf16_from_float(x));
    x = bf16_to_float(out.narrow.back());
  }
  return out;
}

// Calls body(problem, dense) for every code dtype, rule and granularity.
template <typename Body>
void for_every_narrow_case(std::mt19937& random, Body&& body) {
  static constexpr int64_t kEdges[] = {1, 7, 8, 9, 63, 64, 65, 130, 515, 1030};
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    for (const CodeRule rule : rules_of(dtype))
      for (const Granularity g : {kNoScale, kTensor, kRow, kColumn, kGroup5, kGroup64, kBlocks}) {
        const auto rows = 1 + static_cast<int64_t>(random() % 9);
        body(narrow_case(random, dtype, rule, g, rows, kEdges[random() % std::size(kEdges)], random() % 2 == 0));
      }
  }
}

}  // namespace bitgrad::quantize_problem
