// What an exported graph takes and returns, in words and as metadata.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bitgrad/export/export.h"
#include "bitgrad/nn/inference.h"

namespace bitgrad {

// By key: bitgrad.input.layout, bitgrad.input.scaling (a formula of x, a number of the data); only if known, as JSON:
// bitgrad.class_names, and of a table bitgrad.input.features, .missing, .names.
std::vector<std::pair<std::string, std::string>> input_metadata(const ExportSource& source, const ExportSpec& spec,
                                                                const inference::Graph& graph);
// The same as facts of a report: "input", "features", "missing", "names" and "classes".
void note_inputs(ExportReport& report, const ExportSource& source, const ExportSpec& spec,
                 const inference::Graph& graph);

}  // namespace bitgrad
