// The list of direct convolutions. Each kernel is a line for codes, which is exact, or for floats.
#include "kernels/conv/amx/direct.h"
#include "kernels/conv.h"
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/first_layer/first_layer.h"

namespace bitgrad::kernels {
namespace {

bool has_floats(const DirectConvArgs& args) { return args.dtype == dtypes::fp32 || args.w_dtype == dtypes::fp32; }
bool has_floats(const DirectWeightsArgs& args) { return args.gy_dtype == dtypes::fp32; }

// A kernel whose loops are those of kIsa(). Of several that pay, the first of the list runs.
template <SumOrder kOrder, auto kRun, auto kPays, auto kIsa>
struct Direct {
  std::string_view name;
  IsaMask needs;

  template <typename Args>
  constexpr operator Kernel<Args>() const {
    return {{"conv", name, DeviceKind::kCpu, needs, kOrder},
            [](const Args& args) { return has_floats(args) == (kOrder == SumOrder::kFree) && kPays(args, kIsa()); },
            no_cost<Args>,
            [](const Args& args) { kRun(args, kIsa()); }};
  }
};

using namespace conv;

constexpr Kernel<DirectConvArgs> kConv[] = {
    Direct<SumOrder::kExact, conv_amx, conv_amx_pays, direct_machine>{"conv_codes_amx", isa::kAmx},
    Direct<SumOrder::kFree, conv_amx, conv_amx_pays, direct_machine>{"conv_floats_amx", isa::kAmx},
    Direct<SumOrder::kExact, conv_few, conv_few_pays, few_machine>{"conv_few_codes_avx512", isa::kAvx512},
    Direct<SumOrder::kFree, conv_few, conv_few_pays, few_machine>{"conv_few_floats_avx512", isa::kAvx512},
    Direct<SumOrder::kExact, conv_signs, conv_signs_pays, signs_machine>{"conv_signs_avx512",
                                                                         isa::kAvx512 | isa::kAvx512Popcnt},
    Direct<SumOrder::kExact, conv_gradient_signs, conv_gradient_signs_pays, signs_machine>{
        "conv_gradient_codes_signs_avx512", isa::kAvx512},
    Direct<SumOrder::kFree, conv_gradient_signs, conv_gradient_signs_pays, signs_machine>{
        "conv_gradient_floats_signs_avx512", isa::kAvx512}};

constexpr Kernel<DirectWeightsArgs> kConvWeights[] = {
    Direct<SumOrder::kExact, conv_weights_amx, conv_weights_amx_pays, direct_machine>{"conv_weights_codes_amx",
                                                                                      isa::kAmx},
    Direct<SumOrder::kFree, conv_weights_amx, conv_weights_amx_pays, direct_machine>{"conv_weights_floats_amx",
                                                                                     isa::kAmx},
    Direct<SumOrder::kFree, conv_weights_few, conv_weights_few_pays, few_machine>{"conv_weights_few_avx512",
                                                                                  isa::kAvx512},
    Direct<SumOrder::kExact, conv_weights_signs, conv_weights_signs_pays, signs_machine>{
        "conv_weights_codes_signs_avx512", isa::kAvx512},
    Direct<SumOrder::kFree, conv_weights_signs, conv_weights_signs_pays, signs_machine>{
        "conv_weights_floats_signs_avx512", isa::kAvx512}};

template <typename Args>
bool run_cheapest(const KernelList<Kernel<Args>>& kernels, const Args& args) {
  const Kernel<Args>* const kernel = kernels.cheapest(args);
  if (kernel != nullptr) kernel->run(args);
  return kernel != nullptr;
}

}  // namespace

KernelList<Kernel<DirectConvArgs>>& conv_kernels() {
  static auto& list = *new KernelList<Kernel<DirectConvArgs>>(kConv);
  return list;
}
KernelList<Kernel<DirectWeightsArgs>>& conv_weights_kernels() {
  static auto& list = *new KernelList<Kernel<DirectWeightsArgs>>(kConvWeights);
  return list;
}

bool conv_direct(const DirectConvArgs& args) { return run_cheapest(conv_kernels(), args); }
bool conv_weights_direct(const DirectWeightsArgs& args) { return run_cheapest(conv_weights_kernels(), args); }

}  // namespace bitgrad::kernels
