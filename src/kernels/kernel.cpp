// Names of orders, and the list of all kernels.
#include "bitgrad/kernels/kernel.h"

#include <array>

#include "bitgrad/base/error.h"
#include "kernels/families.h"

namespace bitgrad {
namespace {

constexpr std::array<std::string_view, 9> kOrderNames{"exact",    "chain512", "table",   "lanes", "fp64",
                                                      "blocks64", "digits3",  "digits2", "free"};
static_assert(kOrderNames.size() == static_cast<size_t>(SumOrder::kFree) + 1);

std::vector<KernelInfo>& added_kernels() {
  static std::vector<KernelInfo> kernels;
  return kernels;
}

}  // namespace

std::string_view order_name(SumOrder order) {
  const size_t i = static_cast<size_t>(order);
  ensure(i < kOrderNames.size(), "order_name", "there is no order of summation ", i, '.');
  return kOrderNames[i];
}

std::vector<KernelInfo> all_kernels() {
  std::vector<KernelInfo> out;
#define BITGRAD_FAMILY(name) kernels::append_##name##_kernels(out);
#include "kernels/families.inc"
#undef BITGRAD_FAMILY
  for (KernelInfo k : added_kernels()) {
    k.available = k.device == current_device().kind && (k.needs & ~device_isa()) == 0;
    out.push_back(k);
  }
  return out;
}

void add_kernel_infos(std::span<const KernelInfo> kernels) {
  added_kernels().insert(added_kernels().end(), kernels.begin(), kernels.end());
}

}  // namespace bitgrad
