// One state of convolutional networks, whatever computed it: threads, instructions, kills in the middle of an epoch.
// tests/cuda/image_states_test.cpp adds the device.
#include "bitgrad/train/checkpoint.h"
#include "support/catch.h"
#include "train/image_networks.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("convolutional networks have one state for any threads and instructions, 20 steps with augmentation") {
  const KeepModes keep;
  const ImageFolder images;
  for (const ImageNetwork& net : {kCnvNet, kIrNet, kLsqNet, kDepthwiseNet})
    for (const std::vector<std::string>& keys :
         {std::vector<std::string>{}, std::vector<std::string>{"quant.backward={gx: int8, gw: int8}"}}) {
      if (!keys.empty() && !net.low_bit_inputs) continue;
      INFO(net.name << (keys.empty() ? "" : ", gradients in int8"));
      const auto hash = [&](int threads) {
        RunConfig c = images.config(net, keys);
        c.device.threads = threads;
        return run_all(c).state_hash;
      };
      const std::string expected = hash(1);
      for (const int threads : {2, 4}) CHECK(hash(threads) == expected);
      for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
        set_isa_cap(level);
        INFO("cap " << static_cast<int>(level) << ": " << isa_names(cpu_isa()));
        CHECK(hash(2) == expected);
      }
      set_isa_cap(IsaLevel::kAmx);
      RunConfig other = images.config(net, keys);
      other.data.train.augment.flip = false;
      CHECK(run_all(other).state_hash != expected);
    }
}

TEST_CASE("convolutional networks that are killed in the middle of an epoch resume to the state of the calm run") {
  const KeepModes keep;
  const ImageFolder images;
  int runs = 0;
  for (const ImageNetwork& net : {kCnvNet, kIrNet, kLsqNet, kDepthwiseNet}) {
    INFO(net.name);
    const RunConfig config = images.config(net);
    const std::string calm = run_all(config).state_hash;
    for (const int64_t microbatches : {8, 17, 29}) {  // of ten an epoch; the checkpoint of step 3, 6 or 12 is the last
      const std::string folder = create_run_folder(config, images.file("run" + std::to_string(runs++)));
      run_and_die(config, folder, microbatches);
      CHECK(read_checkpoint_header(run_folder_checkpoint(folder)).counters.position % 40 != 0);
      CHECK(resume_run(folder).state_hash == calm);
    }
  }
}
