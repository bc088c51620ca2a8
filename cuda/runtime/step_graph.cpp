#include "cuda/runtime/step_graph.h"

#include <memory>

#include "bitgrad/base/error.h"
#include "cuda/runtime/staging.h"

namespace bitgrad::cuda {
namespace {

struct DestroyGraph {
  void operator()(Graph graph) const noexcept { graph_destroy(graph); }
};
using CapturedGraph = std::unique_ptr<GraphRecord, DestroyGraph>;

// Ends the capture of a stream even if the step throws.
class Capture {
 public:
  explicit Capture(Stream stream) : stream_(stream) { capture_begin(stream); }
  ~Capture() {
    if (!open_) return;
    try {
      graph_destroy(capture_end(stream_));
    } catch (...) {  // the step's own error is already propagating
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  CapturedGraph end() {
    open_ = false;
    return CapturedGraph(capture_end(stream_));
  }

 private:
  Stream stream_;
  bool open_ = true;
};

}  // namespace

StepGraph::~StepGraph() {
  drop();
  try {
    home_.close(pool_);
  } catch (...) {  // out of memory for the list: the blocks stay in the pool
  }
}

void StepGraph::drop() noexcept {
  if (exec_ == nullptr) return;
  try {
    const DeviceGuard guard(device_);
    device_synchronize();
  } catch (...) {  // a later call on the device reports it again
  }
  graph_exec_destroy(exec_);
  exec_ = nullptr;
}

void StepGraph::capture(const std::function<void()>& step) {
  CapturedGraph graph;
  {
    const PoolScope scope(pool_);
    Capture capture(current_stream());
    step();
    graph = capture.end();
  }
  if (exec_ != nullptr && graph_update(exec_, graph.get())) return;
  const GraphExec fresh = graph_instantiate(graph.get());
  drop();
  exec_ = fresh;
}

void StepGraph::launch() {
  require(exec_ != nullptr, "StepGraph", "launch before capture.");
  graph_launch(exec_, current_stream());
}

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
