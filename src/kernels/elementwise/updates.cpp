// Family elementwise: finishing the accumulated gradients of a step, and the loops of the update rules.
#include "kernels/elementwise.h"

#include <atomic>

#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {

bool cpu::finish_gradient(const FinishGradientArgs& args) {
  const auto loop = elementwise::loops().finish_gradient;
  std::atomic<bool> all{true};
  cut(args.n, [&](int64_t i, int64_t end) {
    FinishGradientArgs part = args;
    part.n = end - i;
    part.g += i;
    if (part.w != nullptr) part.w += i;
    bool finite = true;
    loop(part, &finite);
    if (!finite) all.store(false, std::memory_order_relaxed);
  });
  if (!all && args.flags != nullptr)
    std::atomic_ref<uint32_t>(*args.flags).fetch_or(kFlagNonFinite, std::memory_order_relaxed);
  return all;
}

void cpu::sgd_update(const SgdArgs& args) {
  const auto loop = elementwise::loops().sgd;
  cut(args.n, [&](int64_t i, int64_t end) {
    SgdArgs part = args;
    part.n = end - i;
    part.w += i;
    part.g += i;
    if (part.momentum_buffer != nullptr) part.momentum_buffer += i;
    loop(part);
  });
}

void cpu::adam_update(const AdamArgs& args) {
  const auto loop = elementwise::loops().adam;
  cut(args.n, [&](int64_t i, int64_t end) {
    AdamArgs part = args;
    part.n = end - i;
    part.w += i;
    part.m += i;
    part.v += i;
    part.g += i;
    loop(part);
  });
}

void cpu::bop_update(const BopArgs& args) {
  const auto loop = elementwise::loops().bop;
  cut(args.n, [&](int64_t i, int64_t end) {
    BopArgs part = args;
    part.n = end - i;
    part.w += i;
    part.g += i;
    part.m += i;
    loop(part);
  });
}

}  // namespace bitgrad::kernels
