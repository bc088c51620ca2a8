#include "cuda/runtime/step_graph.h"

#include "bitgrad/base/error.h"

namespace bitgrad::cuda {
namespace {

// Ends the capture of a stream, also when the step throws.
class Capture {
 public:
  explicit Capture(Stream stream) : stream_(stream) { capture_begin(stream); }
  ~Capture() {
    if (!open_) return;
    try {
      graph_destroy(capture_end(stream_));
    } catch (const Error&) {  // the step's own error is on its way
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Graph end() {
    open_ = false;
    return capture_end(stream_);
  }

 private:
  Stream stream_;
  bool open_ = true;
};

}  // namespace

StepGraph::~StepGraph() {
  drop();
  home_.close(pool_);
}

void StepGraph::drop() {
  if (exec_ == nullptr) return;
  device_synchronize();
  graph_exec_destroy(exec_);
  exec_ = nullptr;
}

void StepGraph::capture(const std::function<void()>& step) {
  Graph graph = nullptr;
  {
    const PoolScope scope(pool_);
    Capture capture(current_stream());
    step();
    graph = capture.end();
  }
  if (exec_ == nullptr || !graph_update(exec_, graph)) {
    drop();
    exec_ = graph_instantiate(graph);
  }
  graph_destroy(graph);
}

void StepGraph::launch() {
  require(exec_ != nullptr, "StepGraph", "launch before capture.");
  graph_launch(exec_, current_stream());
}

}  // namespace bitgrad::cuda
