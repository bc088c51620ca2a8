// The kernels of all devices: the tables of those without alternatives with the public functions that call them, and
// the list for `bitgrad kernels`.
#include <algorithm>
#include <array>
#include <atomic>

#include "bitgrad/base/error.h"
#include "bitgrad/kernels/gemm.h"
#include "kernels/conv.h"
#include "kernels/flag.h"
#include "kernels/kernel_table.h"
#include "kernels/pack.h"

namespace bitgrad::kernels {
namespace {

constexpr KernelTable kCpuKernels{
#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) \
  {{#family, #name, DeviceKind::kCpu, isa::kScalar, SumOrder::order}, cpu::name},
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
};

std::array<std::atomic<const KernelTable*>, kDeviceKinds> g_tables{&kCpuKernels};

// The loops of the CPU's kernels, which run on the best instructions granted (kernels/isa_loops.h).
#define BITGRAD_LOOP_OF(family, name, order)                                 \
  {family, name "_avx512", DeviceKind::kCpu, isa::kAvx512, SumOrder::order}, \
      {family, name "_avx2", DeviceKind::kCpu, isa::kAvx2, SumOrder::order}, \
      {family, name "_scalar", DeviceKind::kCpu, isa::kScalar, SumOrder::order},
constexpr KernelInfo kCpuLoops[] = {
#define BITGRAD_ISA_LOOP(family, order, result, name, parameters) BITGRAD_LOOP_OF(#family, #name, order)
#include "kernels/attention/kernels.inc"
#include "kernels/codes/kernels.inc"
#include "kernels/conv/kernels.inc"
#include "kernels/elementwise/kernels.inc"
#include "kernels/rowwise/kernels.inc"
#undef BITGRAD_ISA_LOOP
#define BITGRAD_UNARY(name, value, derivative) BITGRAD_LOOP_OF("elementwise", "unary_" #name, kExact)
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
#define BITGRAD_POINTWISE(name, value) BITGRAD_LOOP_OF("pointwise", "pointwise_" #name, kExact)
#include "kernels/pointwise.inc"
#undef BITGRAD_POINTWISE
    {"pointwise", "strided_copy_scalar", DeviceKind::kCpu, isa::kScalar, SumOrder::kExact}};
#undef BITGRAD_LOOP_OF

std::vector<KernelInfo>& map_infos() {
  static std::vector<KernelInfo> list;
  return list;
}

}  // namespace

const KernelTable& kernel_table() {
  const Device device = current_device();
  const KernelTable* const table = g_tables[static_cast<size_t>(device.kind)].load(std::memory_order_acquire);
  if (table == nullptr)
    fail_with(ErrorCode::kDevice, "device", to_string(device), " has no kernels: its backend registered none.");
  return *table;
}

void register_kernel_table(DeviceKind kind, const KernelTable* table) {
  require(kind != DeviceKind::kCpu && static_cast<int>(kind) < kDeviceKinds, "register_kernel_table", "the kernels of ",
          to_string({kind, 0}), " cannot be replaced.");
  g_tables[static_cast<size_t>(kind)].store(table, std::memory_order_release);
}

#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) \
  result name parameters { return detail::present(kernel_table().name.run, #name) arguments; }
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL

}  // namespace bitgrad::kernels

namespace bitgrad {

std::string_view order_name(SumOrder order) {
  constexpr std::array<std::string_view, 9> kNames{"exact",    "chain512", "table",   "lanes", "fp64",
                                                   "blocks64", "digits3",  "digits2", "free"};
  static_assert(kNames.size() == static_cast<size_t>(SumOrder::kFree) + 1);
  const size_t i = static_cast<size_t>(order);
  ensure(i < kNames.size(), "order_name", "no such order of summation: ", i, '.');
  return kNames[i];
}

std::vector<KernelInfo> all_kernels() {
  std::vector<KernelInfo> out;
  const auto append = [&](const auto& kernels) { out.insert(out.end(), std::begin(kernels), std::end(kernels)); };
  append(kernels::gemm_kernels());
  append(kernels::pack_kernels());
  append(kernels::quantize_kernels());
  append(kernels::reduce_kernels());
  append(kernels::conv_kernels());
  append(kernels::conv_weights_kernels());
  for (const auto& registered : kernels::g_tables)
    if (const kernels::KernelTable* const table = registered.load(std::memory_order_acquire); table != nullptr) {
#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) out.push_back(table->name);
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
    }
  append(kernels::kCpuLoops);
  append(kernels::map_infos());
  std::stable_sort(out.begin(), out.end(),
                   [](const KernelInfo& a, const KernelInfo& b) { return a.family < b.family; });
  return out;
}

void add_map_info(const KernelInfo& kernel) { kernels::map_infos().push_back(kernel); }

float read_number(const float* number) {
  if (current_device().is_cpu()) return *number;
  float out = 0;
  device_backend(current_device()).copy_to_host(&out, number, sizeof(out));
  poll_errors();
  return out;
}

namespace detail {

void fail_no_device_kernel(std::string_view name) {
  fail_with(ErrorCode::kDevice, name, "no such kernel on ", to_string(current_device()),
            ". Use the CPU (device.kind=cpu).");
}
void fail_fp64_on_device(std::string_view name) {
  fail_with(ErrorCode::kDevice, name, "fp64 is the reference dtype of the CPU, but the current device is ",
            to_string(current_device()), ". Use fp32, or device cpu.");
}

}  // namespace detail
}  // namespace bitgrad
