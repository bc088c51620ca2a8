// Asynchronous work of the current device: copies of the next batch during computation (Prefetch) and recorded steps
// (StepRecord). On the CPU both run immediately.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "bitgrad/base/device.h"

namespace bitgrad {

//   prefetch->begin();                       // the buffers' last users come before the copies
//   prefetch->copy_from_host(to, from, n);   // any number; the host may change `from` when the call returns
//   prefetch->end();
//   ...                                      // work on other buffers
//   prefetch->wait();                        // work from now on sees the copies; the host does not wait
class Prefetch {
 public:
  virtual ~Prefetch() = default;
  virtual void begin() = 0;
  virtual void copy_from_host(void* to, const void* from, int64_t bytes) = 0;
  virtual void end() = 0;
  virtual void wait() = 0;
};

// A step that queues the same work on the same memory every time and reads nothing back.
class StepRecord {
 public:
  virtual ~StepRecord() = default;
  // Records what step() queues; a device runs nothing of it. Captured again, it replaces what was recorded. What step()
  // throws is rethrown, and the record stays as it was.
  virtual void capture(const std::function<void()>& step) = 0;
  virtual bool captured() const = 0;
  virtual void launch() = 0;
};

// Of the current device, for use while it is current.
std::unique_ptr<Prefetch> make_prefetch();
std::unique_ptr<StepRecord> make_step_record();

// What a kind of device brings. `makers` must live on.
struct DeviceWorkMakers {
  std::unique_ptr<Prefetch> (*prefetch)();
  std::unique_ptr<StepRecord> (*step_record)();
};
void register_device_work(DeviceKind kind, const DeviceWorkMakers* makers);

}  // namespace bitgrad
