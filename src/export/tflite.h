// A network of integers (nn/integer_graph.h) as a file of TensorFlow Lite.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/integer_graph.h"

namespace bitgrad::tflite {

// The bytes of the file; `report` gets a line per layer and tensor. Of a layer that is refused the bytes mean nothing.
// Needs flatbuffers when the library is built (tflite_ops.cpp); else it throws Error that says so.
std::vector<uint8_t> file_of(const inference::Graph& graph, const std::string& name, const ExportSpec& spec,
                             ExportReport& report);

// Writes `path`, unless spec.dry_run. Throws Error that names what the file cannot hold.
ExportReport write_tflite(const inference::Graph& graph, const std::string& path, const std::string& name,
                          const ExportSpec& spec, ExportReport report);

}  // namespace bitgrad::tflite
