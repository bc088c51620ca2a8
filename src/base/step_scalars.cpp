#include "bitgrad/base/step_scalars.h"

namespace bitgrad {
namespace {

thread_local const StepScalars* t_live = nullptr;
thread_local StepScalars t_now;

}  // namespace

LiveScope::LiveScope(const StepScalars* on_device, const StepScalars& now) : outer_(t_live), outer_now_(t_now) {
  t_live = on_device;
  t_now = now;
}
LiveScope::~LiveScope() {
  t_live = outer_;
  t_now = outer_now_;
}

const StepScalars* step_scalars() { return t_live; }

RandomStream live_by_step(RandomStream stream) {
  if (t_live == nullptr) return stream;
  stream.step -= t_now.step;
  stream.live = &t_live->step;
  return stream;
}

RandomStream live_by_microbatch(RandomStream stream) {
  if (t_live == nullptr) return stream;
  stream.step -= t_now.microbatch;
  stream.live = &t_live->microbatch;
  return stream;
}

uint32_t step_now(const RandomStream& stream) {
  if (stream.live == nullptr || t_live == nullptr) return stream.step;
  return stream.step + (stream.live == &t_live->step ? t_now.step : t_now.microbatch);
}

}  // namespace bitgrad
