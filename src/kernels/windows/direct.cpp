// Chooses the unit that runs a direct convolution: tiles, otherwise vectors.
#include "kernels/windows/tiles/direct.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/kernels/windows.h"
#include "kernels/windows/few/few.h"
#include "kernels/windows/signs/signs.h"

namespace bitgrad::kernels {
namespace {

bool has(IsaMask groups) { return (cpu_isa() & groups) == groups; }

}  // namespace

bool conv_direct(const DirectConvArgs& args) {
  if (!current_device().is_cpu()) return false;
  if (has(isa::kAmx) && windows::conv_direct(args, windows::direct_machine(), false)) return true;
  if (!has(isa::kAvx512)) return false;
  if (args.input_gradient) return windows::conv_gradient_signs(args, windows::signs_machine(), false);
  if (windows::conv_few(args, windows::few_machine(), false)) return true;
  return has(isa::kAvx512Popcnt) && windows::conv_signs(args, windows::signs_machine(), false);
}

bool conv_weights_direct(const DirectWeightsArgs& args) {
  if (!current_device().is_cpu()) return false;
  if (has(isa::kAmx) && windows::conv_weights_direct(args, windows::direct_machine(), false)) return true;
  if (!has(isa::kAvx512)) return false;
  return windows::conv_weights_few(args, windows::few_machine(), false) ||
         windows::conv_weights_signs(args, windows::signs_machine(), false);
}

}  // namespace bitgrad::kernels
