#include "choices.h"

#include "bitgrad/run/trainer.h"
#include "table.h"

namespace bitgrad::cli {

PrepareSpec prepare_spec_of(const RunConfig& config) {
  for (const QuantPhase& phase : quant_phases(config, /*microbatches_per_epoch=*/1))
    if (phase.spec) return *phase.spec;
  return {};
}

void print_choices(std::ostream& out, Module& model, const PrepareSpec& spec) {
  std::vector<std::vector<std::string>> lines{{"layer", "rule", "recipe"}};
  for (const LayerChoice& c : choose_layers(model, spec))
    lines.push_back({c.layer, c.quant ? c.rule : "(the layer's own keys)",
                     (c.quant ? c.quant->recipe : c.slot->quant().recipe) + (c.slot->on() ? "" : " (off)")});
  print_table(out, lines);
}

}  // namespace bitgrad::cli
