// 8-bit moments of gradients of very different size in one block: updates are those of fp32 moments.
#include <cmath>

#include "optim/optim_support.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("moments in 8 bits keep the updates of gradients down to 1e-4 of the largest of their block") {
  constexpr int64_t kBlocks = 24, kSizes = 5;
  constexpr float kParts[kSizes] = {1, 1e-1f, 1e-2f, 1e-3f, 1e-4f};
  for (const char* name : {"adam", "sgd"}) {
    std::vector<Floats> moved;
    for (const MomentKind kind : {MomentKind::kFp32, MomentKind::kInt8}) {
      OptimizerSpec spec = named(name);
      spec.moments = kind;
      spec.momentum = spec.name == "sgd" ? 0.9f : 0;
      auto w = float_parameter("w", {kBlocks, 256});
      const Floats before = floats(w->master());
      auto optimizer = make_optimizer(spec);
      optimizer->attach({w.get()});
      std::vector<double> g(kBlocks * 256);
      for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<double>(kParts[i % kSizes]) * (i / 5 % 2 == 0 ? 1 : -1);
      for (int step = 0; step < 100; ++step) {
        accumulate(*w, Tensor::from_elements({kBlocks, 256}, dtypes::fp32, g));
        optimizer->step(1024.0f, 1);  // so that rounded masters show small updates
      }
      moved.push_back(floats(w->master()));
      for (size_t i = 0; i < before.size(); ++i) moved.back()[i] -= before[i];
    }
    double worst = 0, mean = 0;
    for (size_t i = 0; i < moved[0].size(); ++i) {
      const double part = static_cast<double>(moved[1][i]) / static_cast<double>(moved[0][i]);
      worst = std::max(worst, std::fabs(part - 1));
      mean += part / static_cast<double>(moved[0].size());
    }
    INFO(name);
    CHECK(worst < 0.05);
    CHECK(std::fabs(mean - 1) < 0.005);
  }
}
