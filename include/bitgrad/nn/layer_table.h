// Per-layer summary table of a planned model: output shape, precision, parameters, bytes and MACs.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

struct LayerRow {
  std::string layer = {}, kind = {};  // path and layer kind
  // e.g. "bint1 binary tensor", "as is"; empty for a layer without a quantizable weight
  std::string weight = {}, input = {};
  Shape output = {};           // per sample
  DType dtype = dtypes::fp32;  // of the output
  int64_t parameters = 0;  // element count of weights, biases, norm parameters and learned steps, frozen ones included
  // size of these in a model file: codes with scales, other parameters as stored; 0 before initialize
  int64_t bytes = 0;
  int64_t macs = 0;  // multiply-accumulates of one sample's forward pass
  friend bool operator==(const LayerRow&, const LayerRow&) = default;
};
struct LayerTable {
  std::vector<LayerRow> rows = {};  // depth first; a weight shared by several layers counts at its owner
  int64_t parameters = 0, bytes = 0, macs = 0;
};
// Lists every layer that computes something; containers are replaced by their contents. Shapes come from the last
// training plan. A layer that was never planned has output shape [] and 0 MACs.
LayerTable layer_table(Module& model);
// Returns a JSON object with keys parameters, bytes, macs and rows (the fields of LayerRow).
std::string to_json(const LayerTable& table);

// Prints the table in at most `max_lines` lines, plus the totals. Consecutive equal layers (iterations of a repeat,
// uses of a block) are collapsed into one group with a count. If the table is still too long, layers without a product
// that keep the shape are merged into the line above; after that, lines in the middle are left out.
void print_layer_table(std::ostream& out, Module& model, int64_t max_lines = 60);
std::string grouped_digits(int64_t number);  // "1,234,567"

}  // namespace bitgrad
