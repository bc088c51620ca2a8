// Prefetch (bitgrad/base/device.h) on its own stream, in parallel with the computation.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

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
