// Convolutional networks in strict mode end on the (emulated) device with the state of the CPU, and go from one to the
// other in the middle of an epoch.
#include "cuda/same_as_cpu.h"
#include "train/image_networks.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// 20 steps on the CPU, on the device, and there from a checkpoint of the CPU.
void check_network(const ImageNetwork& net) {
  INFO(net.name);
  const KeepModes keep;
  gpu();
  const ImageFolder images;
  std::vector<std::string> keys;
  if (net.low_bit_inputs) keys.push_back("quant.backward={gx: int8, gw: int8}");
  const RunConfig on_cpu = images.config(net, keys);
  const std::string uninterrupted = run_all(on_cpu).state_hash;
  keys.push_back("device.kind=cuda");
  const RunConfig config = images.config(net, keys);
  CHECK(run_all(config).state_hash == uninterrupted);
  const std::string folder = create_run_folder(on_cpu, images.file("run"));
  run_part(on_cpu, folder, 26);
  Trainer trainer(config);
  trainer.resume(run_folder_checkpoint(folder));
  CHECK(trainer.run("").state_hash == uninterrupted);
}

}  // namespace

TEST_CASE("A network of depthwise convolutions ends on a device with the state of the CPU, also from its checkpoint",
          "[bits]") {
  check_network(kDepthwiseNet);
}

TEST_CASE("Every convolutional network ends on a device with the state of the CPU", "[slow]") {
  for (const ImageNetwork& net : {kCnvNet, kIrNet, kLsqNet}) check_network(net);
}
