// Chooses the unit that runs a direct convolution: tiles, otherwise vectors.
#include "kernels/conv/amx/direct.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "kernels/conv.h"
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/first_layer/first_layer.h"

namespace bitgrad::kernels {
namespace {

bool has(IsaMask groups) { return (cpu_isa() & groups) == groups; }

}  // namespace

bool conv_direct(const DirectConvArgs& args) {
  if (!current_device().is_cpu()) return false;
  if (has(isa::kAmx) && conv::conv_direct(args, conv::direct_machine(), false)) return true;
  if (!has(isa::kAvx512)) return false;
  if (args.input_gradient) return conv::conv_gradient_signs(args, conv::signs_machine(), false);
  if (conv::conv_few(args, conv::few_machine(), false)) return true;
  return has(isa::kAvx512Popcnt) && conv::conv_signs(args, conv::signs_machine(), false);
}

bool conv_weights_direct(const DirectWeightsArgs& args) {
  if (!current_device().is_cpu()) return false;
  if (has(isa::kAmx) && conv::conv_weights_direct(args, conv::direct_machine(), false)) return true;
  if (!has(isa::kAvx512)) return false;
  return conv::conv_weights_few(args, conv::few_machine(), false) ||
         conv::conv_weights_signs(args, conv::signs_machine(), false);
}

}  // namespace bitgrad::kernels
