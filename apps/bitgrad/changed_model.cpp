#include "changed_model.h"

#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
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

Argument add_bits_option(Arguments& args, std::vector<int64_t>& bits, const std::string& when) {
  return args
      .option("--bits", bits,
              "bits of weights, by int8wo, int6wo, int5wo, int4wo_symmetric, int3wo, int2wo, binary_wo; " +
                  joined(BudgetConfig{}.bits, ",") + ' ' + when)
      .delimiter(',');
}

std::string numbers_of(const Evaluation& e) {
  std::string text = concat(e.accuracy < 0 ? "" : concat("accuracy ", e.accuracy, " %  "), "loss ", e.loss);
  for (const auto& [name, value] : e.metrics)
    if (name != "loss" && name != "accuracy") text += concat("  ", name, ' ', value);
  return text;
}

Json evaluation_json(const Evaluation& e) {
  Json j{{"accuracy", e.accuracy < 0 ? Json(nullptr) : Json(e.accuracy)}, {"loss", e.loss}, {"samples", e.samples}};
  for (const auto& [name, value] : e.metrics)
    if (!j.contains(name)) j[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  return j;
}

void print_before_after(std::ostream& out, const Evaluation& before, const std::string& of, const Evaluation& after,
                        const std::string& written, const std::string& split) {
  out << "before: " << numbers_of(before) << "  (" << of << ")\n"
      << "after:  " << numbers_of(after) << "  (" << written << ")\n"
      << "of " << after.samples
      << (split == "train"   ? " training"
          : split == "valid" ? " validation"
                             : " test")
      << " samples\n";
}

}  // namespace bitgrad::cli
