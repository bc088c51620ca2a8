// A training step captured as a CUDA graph and launched repeatedly. The step must queue the same work every time, on
// the current stream, and must not read anything back. Memory that it allocates and releases stays with the graph.
#pragma once

#include <cstdint>
#include <functional>

#include "bitgrad/base/device.h"
#include "cuda/runtime/pool.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

// Bound to the device that is current at construction.
class StepGraph final : public StepRecord {
 public:
  StepGraph() : device_(Device::cuda(current_device_index())), home_(memory_pool()), pool_(home_.open()) {}
  ~StepGraph() override;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  void capture(const std::function<void()>& step) override;
  bool captured() const override { return exec_ != nullptr; }
  void launch() override;

 private:
  void drop() noexcept;
  const Device device_;
  MemoryPool& home_;
  const int pool_;
  GraphExec exec_ = nullptr;
};

// Prefetch (bitgrad/base/device.h) on its own stream, in parallel with the computation.

// Bound to the device that is current at construction.
class PrefetchStream final : public Prefetch {
 public:
  PrefetchStream();
  ~PrefetchStream() override;
  PrefetchStream(const PrefetchStream&) = delete;
  PrefetchStream& operator=(const PrefetchStream&) = delete;

  void begin() override;
  void copy_from_host(void* to, const void* from, int64_t bytes) override;
  void end() override;
  void wait() override;
  Stream stream() const { return stream_; }

 private:
  Stream stream_;
  Event free_, copied_;
};

}  // namespace bitgrad::cuda
