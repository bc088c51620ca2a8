// Family pack: converts canonical codes to another layout. The scalar kernel calls the layout record's own function, in
// blocks of rows if the layout is blocked by rows.
#include "kernels/pack.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "kernels/families.h"

namespace bitgrad::kernels {
namespace {

bool pack_layout_scalar_supports(const PackArgs&) { return true; }
double pack_layout_scalar_cost(const PackArgs& args) { return 1.0 * static_cast<double>(args.rows * args.cols); }
constexpr int64_t kChunkCodes = 1 << 17;
void pack_layout_scalar(const PackArgs& args) {
  const RowPacking* by_rows = args.to.rows();
  if (by_rows == nullptr || args.rows == 0)
    return args.to.info().pack(args.dtype, args.rows, args.cols, args.canonical, args.stride, args.out);
  const int64_t units = kChunkCodes / (std::max<int64_t>(args.cols, 1) * by_rows->unit);
  parallel_ranges(args.rows, std::max<int64_t>(units, 1) * by_rows->unit, [&](int64_t begin, int64_t end) {
    by_rows->pack(args.dtype, args.rows, args.cols, args.canonical, args.stride, args.out, begin, end);
  });
}

constexpr Kernel<PackArgs> kKernels[] = {
#define BITGRAD_PACK_KERNEL(name, needs) \
  {#name, DeviceKind::kCpu, needs, SumOrder::kExact, name##_supports, name##_cost, name},
#include "kernels/pack/kernels.inc"
#undef BITGRAD_PACK_KERNEL
};

}  // namespace

namespace {
// Never destroyed, because destructors of static objects may still run kernels.
KernelList<Kernel<PackArgs>>& kernel_list() {
  static auto* const list = new KernelList<Kernel<PackArgs>>(kKernels);
  return *list;
}
}  // namespace

std::span<const Kernel<PackArgs>> pack_kernels() { return kernel_list().kernels(); }
void register_pack_kernels(std::span<const Kernel<PackArgs>> kernels) { kernel_list().add(kernels); }

void pack(const PackArgs& args) {
  const Kernel<PackArgs>* const kernel = cheapest(pack_kernels(), args);
  if (kernel == nullptr)
    fail_with(ErrorCode::kDevice, "pack", "there is no kernel on ", to_string(current_device()), " from canonical ",
              args.dtype, " codes to layout ", args.to, ": no product kernel there reads it. Use layout canonical.");
  kernel->run(args);
}

void append_pack_kernels(std::vector<KernelInfo>& out) { append_kernels("pack", pack_kernels(), out); }

}  // namespace bitgrad::kernels
