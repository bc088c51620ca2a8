// Prefetch (bitgrad/base/device_work.h) on a stream of its own, beside the computation.
#pragma once

#include <cstdint>

#include "bitgrad/base/device_work.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

// Of the device that was current when it was made.
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
