// The rival of bench_step: the same step as a float simulation, as fast as plain code can reasonably be. Operands are
// fake-quantized (one pass each, straight into fp32 or bf16). The three products are oneDNN's, in fp32 or bf16 -> fp32,
// each with the fastest of three ways to pack (weights change in every step, so packing is included). The clip mask and
// Adam are one vectorized pass each; moments and masters are fp32. Norms and dropout of nets are omitted, in the
// rival's favor. Operands of dtype fp32 are multiplied as they are (fp32 step only).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench_step_options.h"
#include "shared/measure.h"

namespace bitgrad::bench {

class FakeQuantizedStep {
 public:
  virtual ~FakeQuantizedStep() = default;
  // One optimizer step.
  virtual void step() = 0;
  // Nanoseconds by part, for each step so far.
  virtual const std::map<std::string, std::vector<double>>& parts() const = 0;
};

// The steps in fp32 and bf16, which share masters, moments and gradients. Null where bitgrad is built without oneDNN,
// or oneDNN does not support the product on this machine.
struct RivalSteps {
  std::unique_ptr<FakeQuantizedStep> fp32, bf16;
};
RivalSteps make_rivals(const Case& what, const Options& options);

}  // namespace bitgrad::bench
