// How a family lists its rows for all_kernels(). One line of families.inc declares the family.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bitgrad/kernels/kernel.h"

namespace bitgrad {

#define BITGRAD_FAMILY(name) void append_##name##_kernels(std::vector<KernelInfo>& out);
#include "kernels/families.inc"
#undef BITGRAD_FAMILY

namespace detail {

// Adds one record for each row: Kernel<Args> or a type derived from it.
template <typename Row>
void append_kernels(std::string_view family, std::span<const Row> rows, std::vector<KernelInfo>& out) {
  for (const Row& row : rows) {
    const bool legal = legal_in_strict(row.order) || bits_mode() == BitsMode::kFast;
    out.push_back({family, row.name, row.needs, row.order, row.granted() && legal, row.device});
  }
}

}  // namespace detail
}  // namespace bitgrad
