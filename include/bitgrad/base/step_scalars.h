// Scalars that change every step, kept in device memory for kernels whose launches are recorded once and replayed
// (StepRecord, base/device.h). A recorded launch captures its arguments by value: plain arguments are frozen.
#pragma once

#include <cstdint>

#include "bitgrad/base/rng.h"

namespace bitgrad {

struct StepScalars {
  uint32_t step = 0, microbatch = 0;  // StepState::step, StepState::microbatch
  float lr = 0;                       // of the optimizer, before per-parameter factors
  float factor = 1;                   // applied to gradients by the global-norm clip
  float decay = 1;                    // applied to weight decay, by its schedule
  float momentum = 1;                 // applied to the momentum, by its schedule
  // UpdateAge::c1, c2 of the parameters that have had the same number of updates.
  static constexpr int kAges = 8;
  struct Age {
    float c1 = 1, c2 = 1;
  } age[kAges] = {};
};

// While it exists, work of this thread is being recorded. `on_device` is the address that kernels will read; `now` is
// its current content.
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

// The `on_device` pointer of the innermost LiveScope of this thread; nullptr outside any.
const StepScalars* step_scalars();

// Return the stream unchanged; while work is recorded, a stream whose step follows the counter in device memory.
RandomStream live_by_step(RandomStream stream);
RandomStream live_by_microbatch(RandomStream stream);
// The step that such a stream currently draws for.
uint32_t step_now(const RandomStream& stream);

}  // namespace bitgrad
