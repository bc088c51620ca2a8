// Scalars that change from step to step, in device memory: what kernels read whose launches are recorded once and
// repeated (StepRecord, base/device_work.h). A launch holds its arguments by value, so those would stay as they were
// when it was recorded.
#pragma once

#include <cstdint>

#include "bitgrad/base/rng.h"

namespace bitgrad {

struct StepScalars {
  uint32_t step = 0, microbatch = 0;  // StepState::step, StepState::microbatch
  float lr = 0;                       // of the optimizer, before factors of parameters
  float factor = 1;                   // of the gradients: global-norm clip
  float c1 = 1, c2 = 1;               // adam: 1 - b1^t, 1 - b2^t
};

// While it lives, work of this thread is recorded: `on_device` is where the kernels will read, `now` what stands there.
class LiveScope {
 public:
  LiveScope(const StepScalars* on_device, const StepScalars& now);
  ~LiveScope();
  LiveScope(const LiveScope&) = delete;
  LiveScope& operator=(const LiveScope&) = delete;

 private:
  const StepScalars* outer_;
  StepScalars outer_now_;
};

// Of the innermost scope of this thread: in memory of the device; nullptr without one.
const StepScalars* step_scalars();

// The stream as it is; while work is recorded, one whose step follows the count.
RandomStream live_by_step(RandomStream stream);
RandomStream live_by_microbatch(RandomStream stream);
// The step that such a stream draws for now.
uint32_t step_now(const RandomStream& stream);

}  // namespace bitgrad
