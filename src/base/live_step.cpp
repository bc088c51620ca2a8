#include "bitgrad/base/live_step.h"

namespace bitgrad {
namespace {

thread_local const LiveStep* t_live = nullptr;
thread_local LiveStep t_now;

}  // namespace

LiveScope::LiveScope(const LiveStep* on_device, const LiveStep& now) : outer_(t_live), outer_now_(t_now) {
  t_live = on_device;
  t_now = now;
}
LiveScope::~LiveScope() {
  t_live = outer_;
  t_now = outer_now_;
}

const LiveStep* live_step() { return t_live; }

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
