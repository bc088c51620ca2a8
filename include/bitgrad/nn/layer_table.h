// The table of a planned model: what each layer gives, holds and multiplies.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

struct LayerRow {
  std::string layer = {}, kind = {};    // path and kind
  std::string weight = {}, input = {};  // of a layer with a product: "bint1 binary tensor", "as is"; else empty
  Shape output = {};                    // of one sample
  DType dtype = dtypes::fp32;           // of the output
  int64_t parameters = 0;               // numbers that train, or would: weights, biases, norms, learned steps
  int64_t bytes = 0;  // of these, as in a model file: codes with their scales, other numbers as they are
  int64_t macs = 0;   // multiplications of one sample's forward pass
  friend bool operator==(const LayerRow&, const LayerRow&) = default;
};
struct LayerTable {
  std::vector<LayerRow> rows = {};  // depth first; a weight that layers share counts at its owner
  int64_t parameters = 0, bytes = 0, macs = 0;
};
// All layers that compute something: of containers those within. Forms are those of the last plan for training; a layer
// that no plan has reached gives [] and no multiplications.
LayerTable layer_table(Module& model);
// A JSON object: parameters, bytes, macs and rows with the fields of LayerRow.
std::string to_json(const LayerTable& table);

// The table on at most so many lines, and the totals. Equal layers in a row (rounds of a repeat, uses of a block) are
// one group of lines that says how often; where that is still too long, layers without products that keep the shape
// count with the line above; where that is still too long, lines in the middle are left out.
void print_layer_table(std::ostream& out, Module& model, int64_t max_lines = 60);
std::string grouped_digits(int64_t number);  // 1,234,567

}  // namespace bitgrad
