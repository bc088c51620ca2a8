// Order of work on emulated streams.
#pragma once

#include <functional>
#include <string>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::emulation {

// Queues work on a stream (nullptr: the device's main stream): runs at once on a main stream and when waited for on
// others; recorded into the graph while the stream captures. `kind`: what graph_update compares.
void enqueue(Stream stream, std::string kind, std::function<void()> operation);

}  // namespace bitgrad::cuda::emulation
