// Order of work on emulated streams.
#pragma once

#include <functional>
#include <string>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::emulation {

// Queues work on a stream (nullptr: the device's main stream). On a main stream it runs at once, on others when waited
// for; while the stream captures, it is recorded into the graph. `kind`: what graph_update compares.
void enqueue(Stream stream, std::string kind, std::function<void()> operation);

}  // namespace bitgrad::cuda::emulation
