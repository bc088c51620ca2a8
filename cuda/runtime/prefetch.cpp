#include "cuda/runtime/prefetch.h"

#include "cuda/runtime/staging.h"

namespace bitgrad::cuda {

PrefetchStream::PrefetchStream() : stream_(stream_create()), free_(event_create()), copied_(event_create()) {}

PrefetchStream::~PrefetchStream() {
  stream_destroy(stream_);
  event_destroy(free_);
  event_destroy(copied_);
}

void PrefetchStream::begin() {
  event_record(free_, current_stream());
  stream_wait(stream_, free_);
}

void PrefetchStream::copy_from_host(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) staging_ring().copy_to_device(to, from, bytes, stream_);
}

void PrefetchStream::end() { event_record(copied_, stream_); }
void PrefetchStream::wait() { stream_wait(current_stream(), copied_); }

}  // namespace bitgrad::cuda
