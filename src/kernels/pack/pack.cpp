// Family pack: canonical codes -> another layout. The scalar row is the layout record's own function.
#include "bitgrad/kernels/pack.h"

#include "kernels/families.h"

namespace bitgrad {
namespace {

bool pack_layout_scalar_supports(const PackArgs&) { return true; }
double pack_layout_scalar_cost(const PackArgs& args) { return 1.0 * static_cast<double>(args.rows * args.cols); }
void pack_layout_scalar(const PackArgs& args) {
  args.to.info().pack(args.dtype, args.rows, args.cols, args.canonical, args.stride, args.out);
}

constexpr KernelRow<PackArgs> kRows[] = {
#define BITGRAD_PACK_ROW(name, needs) \
  {#name, DeviceKind::kCpu, needs, SumOrder::kExact, name##_supports, name##_cost, name},
#include "kernels/pack/kernels.inc"
#undef BITGRAD_PACK_ROW
};

}  // namespace

std::span<const KernelRow<PackArgs>> pack_rows() { return kRows; }

void pack(const PackArgs& args) { cheapest(pack_rows(), args)->run(args); }

void append_pack_kernels(std::vector<KernelInfo>& out) { detail::append_rows("pack", pack_rows(), out); }

}  // namespace bitgrad
