// Helper with which a family lists its kernels for all_kernels(). One line in families.inc declares the family.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

#define BITGRAD_FAMILY(name) void append_##name##_kernels(std::vector<KernelInfo>& out);
#include "kernels/families.inc"
#undef BITGRAD_FAMILY

// Appends one record per kernel. K is Kernel<Args> or a type derived from it.
template <typename K>
void append_kernels(std::string_view family, std::span<const K> kernels, std::vector<KernelInfo>& out) {
  for (const K& k : kernels) {
    const bool legal = legal_in_strict(k.order) || bits_mode() == BitsMode::kFast;
    out.push_back({family, k.name, k.needs, k.order, k.granted() && legal, k.device});
  }
}

}  // namespace bitgrad::kernels
