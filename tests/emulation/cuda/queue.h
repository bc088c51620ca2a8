// The order of work on emulated streams.
#pragma once

#include <functional>
#include <string>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::emulation {

// Work for a stream (null: the device's main stream): done at once on a main stream, when it is waited for on others,
// and kept for the graph while the stream captures. `kind`: what graph_update compares.
void enqueue(Stream stream, std::string kind, std::function<void()> operation);

}  // namespace bitgrad::cuda::emulation
