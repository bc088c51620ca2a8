// Family elementwise: gradients of a window finished, and the loops of the update rules.
#include "bitgrad/kernels/elementwise.h"

#include <atomic>

#include "bitgrad/kernels/device_kernels.h"
#include "kernels/elementwise/loops.h"
#include "kernels/elementwise/tiles.h"

namespace bitgrad {

bool finish_gradient(const FinishGradientArgs& args) {
  if (const DeviceKernels* k = device_kernels()) {
    detail::present(k->finish_gradient, "finish_gradient")(args);
    return true;
  }
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

void sgd_update(const SgdArgs& args) {
  BITGRAD_ON_DEVICE(sgd_update, args);
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

void adam_update(const AdamArgs& args) {
  BITGRAD_ON_DEVICE(adam_update, args);
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

void bop_update(const BopArgs& args) {
  BITGRAD_ON_DEVICE(bop_update, args);
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

}  // namespace bitgrad
