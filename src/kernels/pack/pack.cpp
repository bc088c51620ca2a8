// Family pack: converts canonical codes to another layout. The scalar kernel calls the layout record's own function, in
// blocks of rows if the layout is blocked by rows.
#include "kernels/pack.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"

namespace bitgrad::kernels {
namespace {

double pack_cost(const PackArgs& args) { return static_cast<double>(args.rows * args.cols); }
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
    {{"pack", "pack_layout_scalar", DeviceKind::kCpu, isa::kScalar, SumOrder::kExact},
     supports_all<PackArgs>,
     pack_cost,
     pack_layout_scalar}};

}  // namespace

KernelList<Kernel<PackArgs>>& pack_kernels() {
  static auto& list = *new KernelList<Kernel<PackArgs>>(kKernels);
  return list;
}

void pack(const PackArgs& args) {
  const Kernel<PackArgs>* const kernel = pack_kernels().cheapest(args);
  if (kernel == nullptr)
    fail_with(ErrorCode::kDevice, "pack", "no kernel on ", to_string(current_device()), " from canonical ", args.dtype,
              " codes to layout ", args.to, ": no product kernel there reads it. Use layout canonical.");
  kernel->run(args);
}

}  // namespace bitgrad::kernels
