// Asynchronous work on the current device: copying the next batch during computation (Prefetch) and recorded steps
// (StepRecord). On the CPU, copies are made immediately and launch() calls the captured step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "bitgrad/base/device.h"

namespace bitgrad {

//   prefetch->begin();                       // the copies wait for earlier work on these buffers
//   prefetch->copy_from_host(to, from, n);   // any number of times; `from` may be modified once the call returns
//   prefetch->end();
//   ...                                      // work on other buffers
//   prefetch->wait();                        // later work sees the copies; the host does not block
class Prefetch {
 public:
  virtual ~Prefetch() = default;
  virtual void begin() = 0;
  virtual void copy_from_host(void* to, const void* from, int64_t bytes) = 0;
  virtual void end() = 0;
  virtual void wait() = 0;
};

// A step that queues the same work on the same memory every time and reads nothing back to the host.
class StepRecord {
 public:
  virtual ~StepRecord() = default;
  // Records the work that step() queues without executing it, and replaces any earlier recording. An exception from
  // step() is rethrown and leaves the previous recording intact. On the CPU, step is stored and not called.
  virtual void capture(const std::function<void()>& step) = 0;
  // Executes the recorded work. Throws Error if nothing was captured.
  virtual bool captured() const = 0;
  virtual void launch() = 0;
};

// Created for the current device; use them only while that device is current.
std::unique_ptr<Prefetch> make_prefetch();
std::unique_ptr<StepRecord> make_step_record();

// Factories that a kind of device registers. `makers` must outlive all use of them.
struct DeviceWorkMakers {
  std::unique_ptr<Prefetch> (*prefetch)();
  std::unique_ptr<StepRecord> (*step_record)();
};
void register_device_work(DeviceKind kind, const DeviceWorkMakers* makers);

}  // namespace bitgrad
